// The list of a zip file's entries, with 32- or 64-bit fields. It is read for torch.save(), whose
// entries are stored as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/io/descriptor.h"

namespace trafo::interop {

struct ZipEntry {
  std::string name;
  uint64_t offset, bytes;  // in the file
  uint32_t crc32;          // 0: it was not computed
};

// Whether the file begins as a zip file with an entry.
bool is_zip_file(const Descriptor& file);

// In the order of the file's list; every entry is in the file. CORRUPT_FILE, naming the file.
// UNSUPPORTED, naming the entry: it is compressed or encrypted.
std::vector<ZipEntry> read_zip_entries(const Descriptor& file);

// The bytes at `offset`. CORRUPT_FILE: the file ends before.
std::string read_file_part(const Descriptor& file, uint64_t offset, uint64_t count);

}  // namespace trafo::interop
