"""Package data; see settings.ini and setup.py for how it is installed."""
