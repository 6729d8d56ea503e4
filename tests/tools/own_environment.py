"""A Python environment that a test or benchmark makes for the packages it compares with, kept under build/ between runs."""
import os
import shutil
import subprocess
import sys

SKIPPED = 77


def install(python, folder, packages, override):
    """Whether `packages` are installed. `override`: versions in place of those that a package asks for, which uv can and pip cannot."""
    pip = [python, "-m", "pip", "install", "--quiet"]
    if not override:
        return subprocess.run([*pip, *packages]).returncode == 0
    overrides, cache = os.path.join(folder, "overrides"), os.path.join(folder, "cache")
    with open(overrides, "w", encoding="utf-8") as file:
        file.write("\n".join(override) + "\n")
    uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--override", overrides, "--cache-dir", cache]
    done = subprocess.run([*pip, "uv==0.13.9"]).returncode == 0 and subprocess.run([*uv, *packages]).returncode == 0
    shutil.rmtree(cache, ignore_errors=True)
    return done


def python_with(folder, packages, override=()):
    """The Python of the environment at `folder`, which is made if need be. Exits with 77, and says so, if it cannot be."""
    python, stamp = os.path.join(folder, "bin/python"), os.path.join(folder, "complete")
    installed = open(stamp, encoding="utf-8").read().split() if os.path.exists(stamp) else None
    if installed is None or not set(packages) <= set(installed):
        print("installing", *packages, flush=True)
        made = installed is not None or subprocess.run([sys.executable, "-m", "venv", folder]).returncode == 0
        if not made or not install(python, folder, packages, override):
            print("SKIPPED, nothing was checked: the packages cannot be installed here:", " ".join(packages))
            sys.exit(SKIPPED)
        with open(stamp, "w", encoding="utf-8") as file:
            file.write("\n".join(sorted({*packages, *(installed or [])})) + "\n")
    return python


def enter(folder, packages, override=(), **variables):
    """Continues the running script in that environment, with `variables` set; returns at once there."""
    folder = os.path.abspath(folder)
    if os.environ.get("TRAFO_OWN_ENVIRONMENT") == folder:
        return
    python = python_with(folder, packages, override)
    os.environ.update(variables, TRAFO_OWN_ENVIRONMENT=folder)
    os.execv(python, [python, *sys.argv])
