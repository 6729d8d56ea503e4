// The start of a program.
#pragma once

namespace trafo::os {

// For main(): the standard streams are open (a program may be started without them, and the next
// file it opens would be one), bytes are written as they are, a write at the limit of file sizes
// fails as on a full disk, and a umask keeps no file from its owner. Changes `arguments` to UTF-8
// where the system has another encoding.
void prepare_program(int& count, char**& arguments);

}  // namespace trafo::os
