"""The release build's programs with some of its objects compiled in another way: what mutation tests and coverage need, without building
the rest again. Needs a release build made with Ninja, which exports its compile commands."""

import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = pathlib.Path(os.environ.get("TRAFO_BUILD", ROOT / "build" / "release"))
# Programs that are linked again; the others load the libraries at run time.
TEST_PROGRAMS = ["tests/unit_tests", "tests/op_tests", "tests/train_tests", "tests/parity_tests", "tests/dist_tests", "tests/save_faults"]
MPI_PROGRAMS = ["tests/mpi_ranks"]  # what tests/dist/mpi_test.cc starts; builds without MPI have none
TARGETS = ["unit_tests", "op_tests", "train_tests", "parity_tests", "dist_tests", "save_faults", "c_api_test", "c_api_threads_test", "misuse_suite",
           "process_test", "host_state", "cli_tests", "translate-train"]
PLUGINS = ["libtrafo_tcp.so", "libtrafo_mpi.so"]  # builds without MPI have the first alone
HAS_AVX2 = pathlib.Path("/proc/cpuinfo").exists() and " avx2 " in pathlib.Path("/proc/cpuinfo").read_text()


class CompileError(SystemExit):
    """messages: all that the compiler said."""

    def __init__(self, source, messages):
        super().__init__(f"{source} does not compile:\n{messages[-4000:]}")
        self.messages = messages


def ninja(*arguments):
    return subprocess.run(["ninja", "-C", str(RELEASE), *arguments], capture_output=True, text=True, check=True).stdout


def build_release(jobs, programs=(), wanted=TARGETS):
    # Each object is made of one file of the library, whatever the build was configured for.
    subprocess.run(["cmake", "-DTRAFO_UNITY_LIBRARY=OFF", str(RELEASE)], stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["ninja", "-C", str(RELEASE), "-j", str(jobs), *[each for each in TARGETS if each in wanted], "libtrafo.so", *plugins(), *programs], check=True)


def plugins():
    return [each for each in PLUGINS if subprocess.run(["ninja", "-C", str(RELEASE), "-t", "query", each], capture_output=True).returncode == 0]


def files_of_objects():
    """Object of the release build -> the files of this tree that it is made of."""
    objects, current = {}, None
    for line in ninja("-t", "deps").splitlines():
        if line and not line.startswith(" "):
            current = objects.setdefault(line.split(":")[0], set())
        elif line.strip():
            path = os.path.normpath(RELEASE / line.strip())
            if path.startswith(f"{ROOT}/"):
                current.add(path[len(str(ROOT)) + 1:])
    return objects


def compile_commands():
    """Object -> (compile command, source inside this tree)."""
    commands = {}
    for command in json.loads((RELEASE / "compile_commands.json").read_text(encoding="utf-8")):
        words = shlex.split(command["command"])
        commands[words[words.index("-o") + 1]] = (words, str(pathlib.Path(command["file"]).relative_to(ROOT)))
    return commands


def is_current(output, depends):
    if not output.is_file() or not depends.is_file():
        return False
    made = output.stat().st_mtime
    names = depends.read_text(encoding="utf-8").replace("\\\n", " ").split(": ", 1)[1].split()
    return all(os.path.exists(name) and os.stat(name).st_mtime <= made for name in names)


def compile_object(words, source, folder, copies, flags, kernel_flags=(), compiler=None):
    """Compiles `source`, or its copy under `copies`, with more flags; the path of the object, below `folder`."""
    copy = copies / source if copies else None
    file = copy if copy and copy.is_file() else ROOT / source
    output = folder / words[words.index("-o") + 1]
    output.parent.mkdir(parents=True, exist_ok=True)
    words = [compiler or words[0], *(word for word in words[1:] if word != "-Werror")]
    words[words.index("-o") + 1] = str(output)
    words[words.index("-c") + 1] = str(file)
    words[1:1] = ([f"-I{copies}"] if copies else []) + [f"-I{ROOT}"]  # the headers of the copy come first
    words += ["-w", *flags]
    if "foreach_target.h" in file.read_text(encoding="utf-8"):
        words += kernel_flags
        if HAS_AVX2:
            words += ["-DHWY_COMPILE_ONLY_STATIC", "-march=x86-64-v3"]  # one instruction set of three is enough
    depends = output.with_suffix(".d")
    words += ["-MMD", "-MF", str(depends)]
    if is_current(output, depends):
        return output
    done = subprocess.run((["ccache"] if shutil.which("ccache") else []) + words, cwd=RELEASE, capture_output=True, text=True)
    if done.returncode != 0:
        output.unlink(missing_ok=True)
        raise CompileError(source, done.stderr)
    return output


def link_all(objects, folder, flags, compiler=None, programs=(), wanted=TARGETS):
    """Links the `wanted` test programs, further `programs` and the library with `objects`, into `folder`, by their names in the build."""
    tests = [each for each in TEST_PROGRAMS if pathlib.Path(each).name in wanted]
    jobs = [each for each in MPI_PROGRAMS if "dist_tests" in wanted and (RELEASE / each).exists()]
    for target in [*tests, *jobs, *programs]:
        link(target, objects, folder, flags, compiler)
    for plugin in plugins():  # beside the library, which opens them
        link(plugin, objects, folder, flags, compiler)
    library = link((RELEASE / "libtrafo.so").resolve().name, objects, folder, flags, compiler)
    soname = folder / "libtrafo.so.0"
    soname.unlink(missing_ok=True)
    soname.symlink_to(library.name)


def link(target, objects, folder, flags, compiler=None):
    """Links a target of the release build with `objects` in place of its objects, and before the objects of the static library."""
    words = shlex.split(ninja("-t", "commands", "-s", target).strip().splitlines()[-1])
    words = words[words.index("&&") + 1:]
    words = words[:words.index("&&")] if "&&" in words else words
    output = folder / words[words.index("-o") + 1]
    output.parent.mkdir(parents=True, exist_ok=True)
    words[words.index("-o") + 1] = str(output)
    if "libtrafo.a" in words:
        words[words.index("libtrafo.a"):words.index("libtrafo.a")] = [str(made) for made in objects.values()]
    words = [compiler or words[0], *(str(objects.get(word, word)) for word in words[1:]), *flags]
    done = subprocess.run(words, cwd=RELEASE, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{target} does not link:\n{done.stderr[-4000:]}")
    return output


def relink(wanted, folder, jobs, copies=None, compile_flags=(), link_flags=(), kernel_flags=(), compiler=None, programs=()):
    """wanted(source, files): whether an object is compiled anew; compile_flags: a list, or what gives it for a source; kernel_flags: for
    SIMD code, after compile_flags; compiler: in the place of the release build's. Test programs, further `programs` and the library go
    to `folder`, by their names in the build."""
    commands, files = compile_commands(), files_of_objects()
    flags = compile_flags if callable(compile_flags) else lambda source: list(compile_flags)
    names = [name for name, (_, source) in commands.items() if wanted(source, files.get(name, set()))]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        made = {name: pool.submit(compile_object, *commands[name], folder / "objects", copies, flags(commands[name][1]), kernel_flags, compiler)
                for name in names}
    errors = [error for future in made.values() if (error := future.exception())]
    for error in errors[1:]:
        print(error, file=sys.stderr)
    if errors:
        raise errors[0]
    objects = {name: future.result() for name, future in made.items()}
    link_all(objects, folder, list(link_flags), compiler, programs)
