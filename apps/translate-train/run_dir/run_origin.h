// Which files of a run directory were written by a run. A run that begins there overwrites no
// others.
#pragma once

#include <string>

namespace translate_train {

// The text of config.yml: `settings` (YAML) below a line with checksums of them and of the
// vocabulary in RUN. `owns_vocabulary`: a run has written that file.
std::string config_with_checksums(const std::string& settings, const std::string& run,
                                  bool owns_vocabulary);

// True if a run has written the vocabulary in RUN: the checksums in config.yml fit both files.
bool owns_vocabulary(const std::string& run);

// For a run that begins in `run`. Usage error if it would overwrite a file that no run has written.
// Files of an earlier run that ended before its first checkpoint are no such files.
void refuse_to_overwrite(const std::string& run);

bool same_content(const std::string& a, const std::string& b);

}  // namespace translate_train
