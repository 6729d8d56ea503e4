"""translate-train, as scripts start it that make and measure models."""
import json
import os
import subprocess


class TranslateTrain:
    """The program in the folder `build`."""

    def __init__(self, build):
        self.program = os.path.join(build, "translate-train")

    def run(self, *words):
        """What it printed, as text in stdout and stderr. RuntimeError if it fails."""
        result = subprocess.run([self.program, *words], capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
        return result

    def json(self, *words):
        return json.loads(self.run(*words, "--json").stdout)
