"""Create the development environment, and run a command in it; needs only Python 3.11 and a package index.

    python3 dev/environment.py setup [--java] [--jars]
    python3 dev/environment.py run COMMAND [ARG ...]

The virtual environment is .venv, installed from requirements.lock (versions and hashes) whenever that file changes.
Java 17 or later is searched in JAVA_HOME, then on PATH; if it is missing and the user is root, the
system's package manager installs it. sudo is never used. Without Java, everything but Spark works.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
POM = ROOT / "tests" / "interop" / "pom.xml"
JARS = ROOT / ".build" / "jars"
NEEDED_PYTHON = (3, 11)
NEEDED_JAVA = 17

INSTALLERS = {
    "apt-get": {
        "prepare": ["apt-get", "-qq", "update"],
        "java": ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "openjdk-17-jre-headless"],
        "venv": ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "python3-venv"],
    },
    "dnf": {"java": ["dnf", "-q", "install", "-y", "java-17-openjdk-headless"]},
    "yum": {"java": ["yum", "-q", "install", "-y", "java-17-openjdk-headless"]},
    "apk": {"java": ["apk", "add", "-q", "openjdk17-jre-headless"], "venv": ["apk", "add", "-q", "python3"]},
    "zypper": {"java": ["zypper", "-nq", "install", "java-17-openjdk-headless"]},
    "pacman": {"java": ["pacman", "-Sy", "--noconfirm", "jre17-openjdk-headless"]},
}


def say(message: str) -> None:
    """Print a progress message to standard error."""
    print(f"[setup] {message}", file=sys.stderr, flush=True)


def python_in_venv(venv: Path = VENV) -> Path:
    """Return the environment's Python interpreter."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint(*files: Path) -> str:
    """Return a digest of the files and the interpreter's version."""
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def install_system_package(what: str) -> bool:
    """Install ``what`` with the system's package manager if root; return whether that worked."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    for program, commands in INSTALLERS.items():
        if what in commands and shutil.which(program):
            say(f"installing {what} with {program}")
            if "prepare" in commands:
                subprocess.run(commands["prepare"], check=False, stdout=sys.stderr)
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            done = subprocess.run(commands[what], check=False, stdout=sys.stderr, env=environment)
            return done.returncode == 0
    return False


def make_venv() -> None:
    """Create .venv and install the locked packages and this project into it, if anything changed."""
    stamp = VENV / "delvec-setup"
    wanted = fingerprint(LOCK, ROOT / "pyproject.toml")
    if python_in_venv().exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    if sys.version_info < NEEDED_PYTHON:
        raise SystemExit(
            f"Python {'.'.join(map(str, NEEDED_PYTHON))} or later is needed, this is {sys.version}"
        )
    if not python_in_venv().exists():
        say(f"creating {VENV.name} with Python {sys.version.split()[0]}")
        command = [sys.executable, "-m", "venv", str(VENV)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            if not install_system_package("venv"):
                raise SystemExit(
                    f"Python's venv module does not work here: {(done.stdout + done.stderr).strip()}\n"
                    "Install it (on Debian and Ubuntu: the package python3-venv) and try again."
                )
            subprocess.run(command, check=True)
    say("installing the locked packages (a few minutes the first time)")
    pip = [str(python_in_venv()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True, stdout=sys.stderr)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True, stdout=sys.stderr)
    stamp.write_text(wanted)


def java_version(home: Path) -> int:
    """Return the major version of the Java at ``home``; 0 if there is none."""
    program = home / "bin" / "java"
    if not program.exists():
        return 0
    done = subprocess.run([str(program), "-version"], check=False, capture_output=True, text=True)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found.group(1)) if found else 0


def find_java() -> Path | None:
    """Return the home of a Java that Spark 4 supports: from JAVA_HOME, PATH or the usual location."""
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    homes += sorted(Path("/usr/lib/jvm").glob("*17*"))
    return next((home for home in homes if java_version(home) >= NEEDED_JAVA), None)


def ensure_java() -> Path | None:
    """Return Java's home; install Java if possible, otherwise print instructions."""
    home = find_java()
    if home is None and install_system_package("java"):
        home = find_java()
    if home is None:
        say(
            f"no Java {NEEDED_JAVA}: Spark is left out. To add it, install a JDK or JRE {NEEDED_JAVA} "
            "(for example openjdk-17-jre-headless) and set JAVA_HOME or PATH."
        )
    return home


def fetch_jars() -> bool:
    """Download the JARs of the independent Spark readers with Maven if their list changed; report failures."""
    stamp = JARS / "pom-digest"
    wanted = hashlib.sha256(POM.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    if shutil.which("mvn") is None:
        say("no Maven: the tests against delta-spark's JARs are skipped. Install Maven (mvn) to run them.")
        return False
    say("fetching the JARs of delta-spark with Maven")
    shutil.rmtree(JARS, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode != 0:
        say("Maven could not fetch the JARs: the tests that need them are skipped.")
        return False
    stamp.write_text(wanted)
    return True


def variables(venv: Path = VENV) -> dict[str, str]:
    """Return the environment variables of a process in the virtual environment, with Java."""
    python = python_in_venv(venv)
    environment = dict(os.environ)
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    environment["VIRTUAL_ENV"] = str(venv)
    environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = str(python)
    # Without bytecode on disk, each pytest process would rewrite the asserts of all tests.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("SPARK_HOME", None)  # an installed Spark would be mixed with PySpark's own
    home = find_java()
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    if (JARS / "pom-digest").exists():
        environment.setdefault("DELVEC_TEST_JARS", str(JARS))
    return environment


def run(command: list[str]) -> int:
    """Run ``command`` in the virtual environment, with Java; return its exit code."""
    return subprocess.run(command, check=False, env=variables(), cwd=ROOT).returncode


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="make or refresh the environment")
    setup.add_argument("--java", action="store_true", help="also look for Java, and install it if root")
    setup.add_argument("--jars", action="store_true", help="also fetch delta-spark's JARs with Maven")
    runner = commands.add_parser("run", help="run a command in the environment")
    runner.add_argument("argv", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(arguments.argv)
    make_venv()
    if arguments.java:
        ensure_java()
    if arguments.jars:
        fetch_jars()
    return 0


if __name__ == "__main__":
    sys.exit(main())
