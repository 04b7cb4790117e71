"""Build the package: every field comes from settings.ini."""

import shlex
import sys
from configparser import ConfigParser
from pathlib import Path

import setuptools

root = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(root / "settings.ini", encoding="utf-8")
settings = config["DEFAULT"]
library = settings["lib_path"]


def listed(key: str) -> list[str]:
    """Split a space-separated setting."""
    return shlex.split(settings.get(key, ""))


# Top-level folders that install as data packages. Each holds an __init__.py, so that an editable
# install finds it too.
data_packages = {
    f"{library}.prompts": "prompts",
    f"{library}.data": "data",
    f"{library}.tables_nbs": "nbs/tables",
}
# The tools are importable where the project is installed in place (nbdev calls one of them), and in
# no package.
if "editable_wheel" in sys.argv:
    data_packages[f"{library}_tools"] = "tools"
extras = {key.removeprefix("extra_"): listed(key) for key in settings if key.startswith("extra_")}
every_extra = {requirement for extra in extras.values() for requirement in extra}
extras["dev"] = sorted({*listed("dev_requirements"), *every_extra})

setuptools.setup(
    name=settings["lib_name"],
    version=settings["version"],
    description=settings["description"],
    author=settings["author"],
    keywords=settings["keywords"].split(),
    license=settings["license"],
    python_requires=f">={settings['min_python']}",
    install_requires=listed("requirements"),
    extras_require=extras,
    packages=[*setuptools.find_packages(include=[library, f"{library}.*"]), *data_packages],
    package_dir=data_packages,
    package_data={
        library: ["py.typed"],
        f"{library}.prompts": ["*.md"],
        f"{library}.data": ["*.csv", "*.jsonl", "*.md"],
        f"{library}.tables_nbs": ["*.ipynb"],
    },
    include_package_data=False,
    long_description=(root / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    entry_points={
        "console_scripts": listed("console_scripts"),
        "nbdev": [f"{library}={library}._modidx:d"],
    },
)
