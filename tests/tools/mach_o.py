#!/usr/bin/env python3
"""Checks files for macOS on arm64 on a machine that cannot run them: what they say to the system's loader.

    tests/tools/mach_o.py LIBRARY SYMBOLS SYSTEM VERSION PROGRAM RUN_PATH ...

LIBRARY is a dynamic library whose name begins with @rpath/libtrafo, and which exports the functions that the file SYMBOLS lists and nothing else of Trafo.
Each PROGRAM needs it by that name, and its run paths are RUN_PATH, with spaces between them. No file needs other libraries than those of the
system, or functions that SYSTEM, a text stub of libSystem, does not have. All are for macOS VERSION or newer. Mach-O as <mach-o/loader.h> has it."""
import pathlib
import re
import struct
import sys

MAGIC, ARM64, MACOS = 0xFEEDFACF, 0x0100000C, 1
PROGRAM, LIBRARY = 2, 6
SYMTAB, LOAD_DYLIB, ID_DYLIB, RPATH, BUILD_VERSION = 0x2, 0xC, 0xD, 0x8000001C, 0x32
DEBUGGING, PRIVATE_EXTERNAL, TYPE, EXTERNAL = 0xE0, 0x10, 0x0E, 0x01
# Zig's linker ignores the list of exports. It adds names of the file and those of its static C++ library that programs may replace: operators
# new and delete. Everything else is hidden by the compiler.
OF_ZIG = re.compile(r"__mh_dylib_header|___dso_handle|__Z(n[aw]|d[al])\w*")


class MachO:
    def __init__(self, path, kind):
        self.path, data = path, pathlib.Path(path).read_bytes()
        magic, processor, _, found_kind, commands = struct.unpack_from("<5I", data)
        require((magic, processor, found_kind) == (MAGIC, ARM64, kind), f"{path} has another format, processor or kind")
        self.name, self.version, self.needs, self.run_paths = None, None, [], []
        self.exports, self.imports = set(), set()
        at = 32
        for _ in range(commands):
            command, size = struct.unpack_from("<2I", data, at)
            if command in (LOAD_DYLIB, ID_DYLIB, RPATH):
                begin = at + struct.unpack_from("<I", data, at + 8)[0]
                text = data[begin:at + size].split(b"\0", 1)[0].decode()
                if command == ID_DYLIB:
                    self.name = text
                else:
                    (self.needs if command == LOAD_DYLIB else self.run_paths).append(text)
            elif command == BUILD_VERSION:
                platform, version = struct.unpack_from("<2I", data, at + 8)
                require(platform == MACOS, f"{path} is for platform {platform}")
                self.version = f"{version >> 16}.{version >> 8 & 255}"
            elif command == SYMTAB:
                self._read_symbols(data, *struct.unpack_from("<3I", data, at + 8))
            at += size

    def _read_symbols(self, data, symbols, count, strings):
        for i in range(count):
            string, kind = struct.unpack_from("<IB", data, symbols + 16 * i)
            if kind & DEBUGGING or kind & PRIVATE_EXTERNAL or not kind & EXTERNAL:
                continue
            begin = strings + string
            (self.exports if kind & TYPE else self.imports).add(data[begin:data.index(b"\0", begin)].decode())


def require(condition, message):
    if not condition:
        sys.exit(f"mach_o: {message}")


def main():
    library_path, symbols, system, version, *programs = sys.argv[1:]
    library = MachO(library_path, LIBRARY)
    wanted = {f"_{name}" for name in pathlib.Path(symbols).read_text().split() if name.startswith("trafo_")}
    exports = {name for name in library.exports if not OF_ZIG.fullmatch(name)}
    require(exports == wanted, f"the library exports {sorted(exports ^ wanted)[:20]} too much or too little")
    require(library.name and library.name.startswith("@rpath/libtrafo."), f"the library's name is {library.name}")
    programs = [(MachO(path, PROGRAM), paths.split()) for path, paths in zip(programs[::2], programs[1::2], strict=True)]
    for program, run_paths in programs:
        require(library.name in program.needs, f"{program.path} needs {program.needs}")
        require(program.run_paths == run_paths, f"the run paths of {program.path} are {program.run_paths}")
    known = set(re.findall(r"[\w$.]+", pathlib.Path(system).read_text()))
    for file in [library] + [program for program, _ in programs]:
        require(file.version == version, f"{file.path} is for macOS {file.version}")
        needs = [name for name in file.needs if name not in ("/usr/lib/libSystem.B.dylib", library.name)]
        require(not needs, f"{file.path} needs {needs}")
        missing = file.imports - known - (wanted if file is not library else set())
        require(not missing, f"{file.path} needs {sorted(missing)[:20]}, which nothing has")
    print(f"mach_o: {library.name} for macOS {version} exports the {len(wanted)} functions of {symbols} and needs libSystem alone; "
          f"{len(programs)} programs find it in {', '.join(' and '.join(paths) for _, paths in programs)}")


main()
