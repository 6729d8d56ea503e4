#include "engine/core/strings/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace trafo {
namespace {

Json parse(std::string_view text) {
  return parse_json(text, "test", "text");
}

// Files of earlier releases were written by nlohmann::ordered_json.
TEST(Json, WritesWhatTheLibraryWrites) {
  for (const char* text :
       {"null", "true", "-9223372036854775808", "18446744073709551615", "0", "[]", "{}", "0.1",
        "1e-05", "0.0001", "1e+16", "123456789012345680.0", "1.0", "5e-324", "-0.0",
        "0.30000000000000004", R"("\u0000\u001f\u007f\"\\/\b\f\n\r\t \u00e9\u2581\ud83d\ude00")",
        R"([[],{},[1,[2.5]]])",
        R"({"z":1,"a":{"list":[true,null,"x"],"empty":{}},"m":[{"k":-3}]})"}) {
    const auto expected = nlohmann::ordered_json::parse(text);
    for (const int indent : {-1, 0, 2})
      EXPECT_EQ(parse(text).dump(indent), expected.dump(indent)) << text;
    EXPECT_EQ(parse(parse(text).dump()), parse(text)) << text;
  }
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(0.1f).dump(), nlohmann::json(0.1f).dump());
}

TEST(Json, BuildsValues) {
  Json json;
  json["name"] = "x";
  json["count"] = int64_t{-1};
  json["sizes"] = std::vector<int64_t>{2, 3};
  json["pairs"] = Json::Object{{"a", 1}, {"b", nullptr}};
  json["name"] = std::string("y");
  EXPECT_EQ(json.dump(), R"({"name":"y","count":-1,"sizes":[2,3],"pairs":{"a":1,"b":null}})");
  EXPECT_EQ(json.find("missing"), nullptr);
  EXPECT_EQ(Json(1).find("missing"), nullptr);
}

TEST(Json, ComparesNumbersByValueAndObjectsInAnyOrder) {
  EXPECT_EQ(parse("1"), Json(1.0));
  EXPECT_EQ(Json(size_t{7}), Json(int32_t{7}));
  EXPECT_NE(parse("-1"), Json(1));
  EXPECT_NE(parse("1"), Json(true));
  EXPECT_NE(parse("1"), Json("1"));
  EXPECT_EQ(parse(R"({"a":1,"b":[{"c":2,"d":3}]})"), parse(R"({"b":[{"d":3,"c":2}],"a":1})"));
  EXPECT_NE(parse(R"({"a":1})"), parse(R"({"b":1})"));
  EXPECT_NE(parse(R"({"a":1})"), parse(R"({"a":1,"b":1})"));
}

}  // namespace
}  // namespace trafo
