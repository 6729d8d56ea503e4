// One page that shows runs: figures, curves, translations, configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/report_data.h"

namespace translate_train {

inline constexpr size_t kMostRuns = 8;  // as many as can be told apart by colour

// What every page begins with.
inline constexpr std::string_view kReportBegin =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"generator\" content=\"translate-train report\">\n";

// The whole HTML file. It fetches nothing. `now` is in Unix seconds.
std::string report_page(const std::vector<RunLog>& runs, double now);

// Parts of it.
std::string charts_section(const std::vector<RunLog>& runs);
std::string samples_section(const std::vector<RunLog>& runs);
std::string settings_section(const std::vector<RunLog>& runs);
extern const char* const kReportStyle;
extern const char* const kReportScript;
// A run's name behind a spot of its colour.
std::string run_label(const std::vector<RunLog>& runs, size_t run);

}  // namespace translate_train
