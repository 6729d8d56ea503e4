// Text and numbers for an HTML page.
#pragma once

#include <string>
#include <string_view>

namespace translate_train {

// Whatever bytes come in, the result is UTF-8 text that means itself, in elements and in quoted
// attributes: markup escaped, bytes that are no UTF-8 and control characters replaced by U+FFFD.
std::string html(std::string_view text);
// The same as a JSON string with its quotes, safe inside a script element.
std::string json_string(std::string_view text);

// 4 significant digits at most: 0.0005, 1250, 12.5k, 3M.
std::string compact(double value);
// As many decimals; "–" for NaN.
std::string fixed(double value, int decimals);
// "23 MB", "1.25 GB"
std::string bytes_text(double bytes);
// "2 h 05 min", "3 min 20 s", "12 s"
std::string duration_text(double seconds);
// "2026-11-21 18:20 UTC"
std::string date_text(double unix_seconds);

}  // namespace translate_train
