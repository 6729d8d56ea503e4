// RAII over the C interface: handles free themselves, errors become exceptions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "commands/cli_error.h"
#include "trafo.h"

namespace translate_train {

// Throws CliError with the exit code that belongs to the error. `context`, if any, goes before the
// message.
void check(trafo_error* error, std::string_view context = {});

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* handle) const {
    Free(handle);
  }
};
template <typename T, auto Free>
using Handle = std::unique_ptr<T, Freer<Free>>;

using Context = Handle<trafo_context, trafo_context_free>;
using Cancel = Handle<trafo_cancel, trafo_cancel_free>;
using Tokenizer = Handle<trafo_tokenizer, trafo_tokenizer_free>;
using Corpus = Handle<trafo_corpus, trafo_corpus_free>;
using Model = Handle<trafo_model, trafo_model_free>;
using Group = Handle<trafo_group, trafo_group_free>;
using Trainer = Handle<trafo_trainer, trafo_trainer_free>;
using Shortlist = Handle<trafo_shortlist, trafo_shortlist_free>;
using Translations = Handle<trafo_translations, trafo_translations_free>;
using Generator = Handle<trafo_generator, trafo_generator_free>;

// make<Model>(trafo_model_load, context.get(), path.data(), path.size())
template <typename H, typename Function, typename... Arguments>
H make(Function function, Arguments... arguments) {
  typename H::pointer handle = nullptr;
  check(function(arguments..., &handle));
  return H(handle);
}

// with_defaults<trafo_trainer_options>(trafo_trainer_options_init)
template <typename Options, typename Init>
Options with_defaults(Init init) {
  Options options;
  check(init(&options, sizeof options));
  return options;
}

inline trafo_string_view view(std::string_view text) {
  return {text.data(), text.size()};
}
std::vector<trafo_string_view> views(const std::vector<std::string>& lines);

}  // namespace translate_train
