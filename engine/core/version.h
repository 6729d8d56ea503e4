#pragma once

namespace trafo {

// Of the whole release: engine, C ABI, bindings, plugin. CMakeLists.txt has the same number, and a
// test compares them.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace trafo
