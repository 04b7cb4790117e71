"""A real Chromium and a real JupyterLab, each started once."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Page, expect, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE = 60_000
CELLS = {
    "run": """
        from seval_ex import SEvalEx
        from seval_ex.datasets import load_sample
        from seval_ex.explore import explore

        sample = load_sample().query("language == 'en'")
        columns = ["id", "system", "source", "summary", "consistency"]
        run = SEvalEx().evaluate_many(sample[columns], progress=False, ledgers=True)
        """,
    "first view": "run['ledger'].iloc[2]",
    "second view": "run['ledger'].iloc[2]",
    "explorer": "explorer = explore(run)\nexplorer",
    "explorer again": "explorer",
    "selection": """
        names = explorer.selection[["id", "system"]]
        print("selected", names.agg(" ".join, axis=1).tolist())
        """,
}

KERNEL_IS_READY = """
() => {
  const session = window.jupyterapp?.shell.currentWidget?.sessionContext?.session;
  return session?.kernel?.connectionStatus === "connected" && session.kernel.status === "idle";
}
"""


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker("browser")


@pytest.fixture(scope="session")
def shots(root) -> Path:
    folder = root / "runs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail(f"no browser: install one of {', '.join(BROWSERS)}")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[*QUIET])
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Browser):
    """Open a page that complains about nothing: no error, no script that was refused."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    yield page
    context.close()
    assert not complaints


def _settings(folder: Path) -> None:
    """Keep JupyterLab from asking for news, and every cell in the page."""
    wanted = {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "notebook-extension/tracker": {"windowingMode": "none"},
    }
    for name, values in wanted.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"JupyterLab did not start: {log.read_text('utf-8')[-2000:]}")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """Start JupyterLab with nobody's settings on a notebook of `CELLS`; yield its address."""
    home = tmp_path_factory.mktemp("lab")
    cells = [new_code_cell(dedent(text).strip()) for text in CELLS.values()]
    notebook = new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    (home / "work").mkdir()
    nbformat.write(notebook, home / "work" / "browse.ipynb")
    _settings(home / "settings")
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    surroundings = os.environ | {name: str(home / folder) for name, folder in folders.items()}
    token, port = secrets.token_hex(16), _free_port()
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": home / "work",
        "IdentityProvider.token": token,
        "LabApp.expose_app_in_browser": True,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "ContentsManager.allow_hidden": False,
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    log = home / "lab.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", *given],
            env=surroundings,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(f"{address}/api/status?token={token}", server, log)
            yield f"{address}/doc/tree/browse.ipynb?token={token}"
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


@pytest.fixture(scope="session")
def notebook(lab: str, browser: Browser) -> Page:
    """Open the notebook in JupyterLab, run all of it, and wait for the explorer."""
    page = browser.new_context(
        viewport={"width": 1500, "height": 1000}, accept_downloads=True
    ).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(lab)
    expect(page.locator(".jp-Cell")).to_have_count(len(CELLS))
    page.wait_for_function(KERNEL_IS_READY)
    # `void`, here and elsewhere: a promise that is waited for in the page has no time limit.
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    rows = page.locator(".sxx table tbody tr")
    failed = page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']")
    expect(rows.or_(failed).first).to_be_visible()
    if failed.count():
        pytest.fail(f"a cell of the notebook failed: {failed.first.text_content()}")
    return page
