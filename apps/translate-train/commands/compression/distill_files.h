// The two files that distill writes. They grow in steps and survive a kill.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace translate_train {

// While SOURCE and TARGET grow they are SOURCE.part and TARGET.part. TARGET.journal says how long
// both are after each step. A later process cuts off everything after the last whole step and
// continues there.
class DistillFiles {
 public:
  using Json = nlohmann::ordered_json;

  // Creates the files, or continues the files of an earlier process. `settings`: what the text
  // follows from; the names of its members stand in messages. Usage errors: a file of one of the
  // five names is not from distill; the journal is damaged, another process has it, or the settings
  // differ and a step has been written.
  DistillFiles(std::string source, std::string target, const Json& settings);
  // Usage error: the constructor would refuse these names because something has them.
  static void check_names(const std::string& source, const std::string& target);

  // The state that the last step left; null before the first one.
  const Json& state() const { return journal_["state"]; }
  // Everything is written, and only the names may be missing.
  bool finished() const;
  // False if the file system has no locks (flock): another process is not kept away.
  bool is_locked() const { return is_locked_; }
  std::string journal_name() const { return target_.name + ".journal"; }
  // The names of the files written so far, for LineReader.
  std::string source_part() const { return source_.name + ".part"; }
  std::string target_part() const { return target_.name + ".part"; }

  // Writes whole lines to both files, gzip if the name ends in .gz. They and the state are on the
  // disk when it returns.
  void append(std::string_view source_lines, std::string_view target_lines, Json state);
  // Gives both files their names and removes the journal.
  void finish();

 private:
  struct Part {
    Part() = default;
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    std::string name;  // without .part
    int file = -1;
    int64_t bytes = 0;  // of whole steps
  };
  bool read_journal();
  void write_journal();
  void check_settings(const Json& settings);
  void open(Part& part);
  void extend(Part& part, std::string_view lines);
  static void publish(Part& part);

  Part source_, target_;
  bool is_locked_ = true;
  Json journal_;
};

}  // namespace translate_train
