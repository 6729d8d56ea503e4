// A secret that all processes of one user on this host can read, and nobody else.
#pragma once

#include <string>
#include <string_view>

namespace translate_train {

// Whether it is 32 random bytes or more in hexadecimal digits, as `openssl rand -hex 32` writes
// them.
bool is_secret(std::string_view text);
// 64 hexadecimal digits. The first call of any process makes them, in a file of os::user_folder().
// Throws CliError: the file cannot be made, or others can read or write it.
std::string host_secret();

}  // namespace translate_train
