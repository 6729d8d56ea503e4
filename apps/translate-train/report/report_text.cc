#include "report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/core/strings/utf8.h"

namespace translate_train {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string valid_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bad = std::min(trafo::find_invalid_utf8(text), text.size());
    for (const char c : text.substr(0, bad)) {
      const auto byte = static_cast<unsigned char>(c);
      const bool control = (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7F;
      if (control)
        out += kReplacement;
      else
        out += c;
    }
    text.remove_prefix(bad);
    if (!text.empty()) {
      out += kReplacement;
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace

std::string html(std::string_view text) {
  std::string out;
  for (const char c : valid_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : valid_text(text)) {
    // "</script>" and "<!--" would end or change the element.
    if (c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == '\t' || c == '\n')
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string compact(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  // 9999.6 would round to 1e+04.
  if (size >= 999950000) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 999950) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 9999.5) return fmt::format("{:.4g}k", value / 1e3);
  if (size != 0 && size < 1e-4) return fmt::format("{:.3e}", value);
  return fmt::format("{:.4g}", value);
}

std::string fixed(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "–";
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "–";
  return bytes < 999.5e6 ? fmt::format("{:.3g} MB", bytes / 1e6)
                         : fmt::format("{:.3g} GB", bytes / 1e9);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0)) return "–";
  const auto all = static_cast<int64_t>(seconds + 0.5);
  if (all >= 3600) return fmt::format("{} h {:02} min", all / 3600, all / 60 % 60);
  if (all >= 60) return fmt::format("{} min {:02} s", all / 60, all % 60);
  return fmt::format("{} s", all);
}

std::string date_text(double unix_seconds) {
  // 9999-12-31; later years do not have four digits.
  const std::chrono::sys_seconds time(
      std::chrono::seconds(static_cast<int64_t>(std::clamp(unix_seconds, 0.0, 253402300799.0))));
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count());
}

}  // namespace translate_train
