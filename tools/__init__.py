"""What builds and checks the project; importable where the project is installed in place."""
