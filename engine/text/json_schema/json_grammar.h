// Grammars of JSON texts.
//
// Between the parts of a value is nothing, a space, or a line feed with at most 16 spaces. Before
// the first value may be a space. Numbers have at most 16 digits before and after the point and an
// exponent of at most two. Strings are valid UTF-8, and escapes of surrogates come in pairs.
#pragma once

#include <memory>
#include <string_view>

#include "engine/text/json_schema/byte_grammar.h"

namespace trafo {

inline constexpr const char* kJsonSchemaOrigin = "json_schema";

// Of the values that a JSON Schema allows; the schema true allows all. Known keys are type,
// properties, required, additionalProperties, items, enum, const, anyOf and $ref (inside the
// schema), $defs and definitions, and annotations, which change nothing: title, description,
// default, examples, deprecated, readOnly, writeOnly, $schema, $comment and $id.
//
// An object has its properties in the order of the schema, no others, and all that are required.
// Without properties it has any names; they may repeat. A value of enum or const is written without
// white space.
//
// INVALID_ARGUMENT with the path of the place: no JSON, another key, a key with a wrong value, a
// schema that allows nothing or nothing finite, more than ByteGrammar::kMostNodes nodes.
std::shared_ptr<const ByteGrammar> json_grammar(std::string_view schema);

}  // namespace trafo
