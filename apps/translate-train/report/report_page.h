// One page that shows runs: figures, curves, translations, configuration.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "report/report_data.h"

namespace translate_train {

inline constexpr size_t kMostRuns = 8;  // as many as can be told apart by colour

// The beginning of every page.
std::string_view report_begin();

// The whole HTML file. It fetches nothing. `now` is in Unix seconds.
std::string report_page(const std::vector<RunLog>& runs, double now);

// Data of its parts, for report/template/report.html.
nlohmann::ordered_json charts_data(const std::vector<RunLog>& runs);
nlohmann::ordered_json sentences_data(const std::vector<RunLog>& runs);

}  // namespace translate_train
