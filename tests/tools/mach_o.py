#!/usr/bin/env python3
"""Checks what a dynamic library and a program for macOS say to the loader, on a machine that cannot run them.

    tests/tools/mach_o.py LIBRARY PROGRAM SYMBOLS

The library is for arm64, has a name by which programs find it in their run paths, exports the names of the file SYMBOLS and no others that
begin with trafo_, and needs libraries of the system alone. The program asks for the library by that name, and its run path is its own folder.
Mach-O 64, as <mach-o/loader.h> describes it."""
import pathlib
import struct
import sys

MAGIC, ARM64 = 0xFEEDFACF, 0x0100000C
SYMTAB, LOAD_DYLIB, ID_DYLIB, RPATH = 0x2, 0xC, 0xD, 0x8000001C
EXTERNAL, PRIVATE_EXTERNAL, TYPE_MASK, IN_SECTION = 0x01, 0x10, 0x0E, 0x0E


class MachO:
    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        magic, processor, _, _, commands = struct.unpack_from("<5I", data)
        assert (magic, processor) == (MAGIC, ARM64), f"{path} is no 64-bit Mach-O file for arm64"
        self.name, self.needs, self.run_paths, self.exports = None, [], [], set()
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
            elif command == SYMTAB:
                self._read_symbols(data, *struct.unpack_from("<4I", data, at + 8))
            at += size

    def _read_symbols(self, data, symbols, count, strings, _):
        for i in range(count):
            string, kind = struct.unpack_from("<IB", data, symbols + 16 * i)
            if kind & EXTERNAL and not kind & PRIVATE_EXTERNAL and kind & TYPE_MASK == IN_SECTION:
                begin = strings + string
                self.exports.add(data[begin:data.index(b"\0", begin)].decode())


def main():
    library, program = MachO(sys.argv[1]), MachO(sys.argv[2])
    wanted = {f"_{name}" for name in pathlib.Path(sys.argv[3]).read_text().split() if name.startswith("trafo_")}
    found = {name for name in library.exports if name.startswith("_trafo_")}
    assert found == wanted, f"the library exports {sorted(found ^ wanted)} too much or too little"
    assert library.name and library.name.startswith("@rpath/libtrafo"), f"the library's name is {library.name}"
    assert all(name.startswith("/usr/lib/") for name in library.needs), f"the library needs {library.needs}"
    assert library.name in program.needs, f"the program needs {program.needs}"
    assert program.run_paths == ["@loader_path"], f"the program's run paths are {program.run_paths}"
    others = len(library.exports) - len(found)
    print(f"mach_o: {library.name} exports {len(found)} functions ({others} other names) and needs {', '.join(library.needs)}")


main()
