"""translate-train, as scripts start it that make and measure models."""
import json
import os
import subprocess


class TranslateTrain:
    """The program in the folder `build`."""

    def __init__(self, build):
        self.program = os.path.join(build, "translate-train")

    def run(self, *words, seconds=None):
        """Its output, as text in stdout and stderr. RuntimeError if it fails or takes more than `seconds`."""
        try:
            result = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{' '.join(words)}\nended after {seconds:.0f} s") from error
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
        return result

    def json(self, *words):
        return json.loads(self.run(*words, "--json").stdout)
