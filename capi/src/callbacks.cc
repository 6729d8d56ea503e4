#include <atomic>
#include <limits>
#include <mutex>
#include <span>
#include <thread>

#include "capi/src/model_handles.h"
#include "capi/src/text_handles.h"
#include "capi/src/trainer_handles.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/core/strings/utf8.h"
#include "engine/data/batch_packer.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

class WriterSink final : public ByteSink {
 public:
  WriterSink(const Call& call, trafo_write_fn function, void* user_data)
      : call_(call), function_(function), user_data_(user_data) {
    if (!function) call.refuse_argument("write", " is NULL");
  }
  using ByteSink::write;
  void write(std::span<const std::byte> bytes) override {
    if (bytes.empty()) return;
    const int32_t result = call_host(function_, user_data_,
                                     reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    require(result == 0, ErrorCode::io, call_.function(), "the writer returned ", result);
  }

 private:
  const Call& call_;
  trafo_write_fn function_;
  void* user_data_;
};

std::vector<std::byte> read_all(const Call& call, trafo_read_fn read, void* user_data) {
  if (!read) call.refuse_argument("read", " is NULL");
  constexpr size_t kPiece = size_t{1} << 20;
  std::vector<std::byte> bytes;
  for (;;) {
    const size_t have = bytes.size();
    bytes.resize(have + kPiece);
    size_t count = 0;
    const int32_t result =
        call_host(read, user_data, reinterpret_cast<uint8_t*>(bytes.data() + have), kPiece, &count);
    require(result == 0, ErrorCode::io, call.function(), "the reader returned ", result);
    if (count > kPiece) call.refuse("the reader gave ", count, " bytes where ", kPiece, " fit");
    bytes.resize(have + count);
    if (count == 0) return bytes;
  }
}

class FunctionText final : public PairText {
 public:
  FunctionText(int64_t pairs, uint64_t identity, trafo_pair_fn function,
               std::shared_ptr<void> user_data)
      : function_(function), user_data_(std::move(user_data)) {
    report_.lines = report_.pairs = pairs;
    fingerprint_ = mix_bits(mix_bits(identity + 1) + static_cast<uint64_t>(pairs));
    large_ = true;  // read again in every epoch, not kept as token ids
  }
  int64_t size() const noexcept override { return report_.pairs; }
  PairView view(int64_t pair, PairBuffers& buffers) const override {
    {
      const Turn one_at_a_time(*this);
      trafo_string_view source{}, target{};
      const int32_t result = call_host(function_, user_data_.get(), pair, &source, &target);
      require(result == 0, ErrorCode::io, "trafo_pair_fn", "the function returned ", result,
              " for pair ", pair);
      buffers.source = checked(source, "source", pair);
      buffers.target = checked(target, "target", pair);
    }
    return {buffers.source, buffers.target};
  }

 private:
  // The function may call back into this corpus, on the thread that holds the mutex.
  class Turn {
   public:
    explicit Turn(const FunctionText& text) : text_(text) {
      require(text.caller_ != std::this_thread::get_id(), ErrorCode::invalid_argument,
              "trafo_pair_fn", "the function asks for pairs of its own corpus");
      text.mutex_.lock();
      text.caller_ = std::this_thread::get_id();
    }
    ~Turn() {
      text_.caller_ = std::thread::id();
      text_.mutex_.unlock();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    const FunctionText& text_;
  };

  static std::string_view checked(const trafo_string_view& view, const char* side, int64_t pair) {
    const std::string_view text = Call("trafo_pair_fn").text(view.data, view.length, side);
    require(is_valid_utf8(text) && text.find('\0') == std::string_view::npos,
            ErrorCode::invalid_argument, "trafo_pair_fn", "the ", side, " of pair ", pair,
            " is not UTF-8 or has a NUL byte");
    return text;
  }

  trafo_pair_fn function_;
  std::shared_ptr<void> user_data_;
  mutable std::mutex mutex_;
  mutable std::atomic<std::thread::id> caller_;  // the thread that holds the mutex
};

}  // namespace

trafo_error* trafo_trainer_set_rate(trafo_trainer* trainer, trafo_rate_fn rate, void* user_data,
                                    void (*user_data_free)(void*)) {
  return api(__func__, [&](const Call& call) {
    const auto keep = owned(user_data, user_data_free);
    const Working t(call, trainer);
    RateFunction function;
    if (rate)
      function = [rate, keep](int64_t update, double scheduled) {
        return call_host(rate, keep.get(), update, scheduled);
      };
    t->run->set_rate(std::move(function));
  });
}

trafo_error* trafo_trainer_set_batches(trafo_trainer* trainer, trafo_batch_fn batches,
                                       void* user_data, void (*user_data_free)(void*)) {
  return api(__func__, [&](const Call& call) {
    const auto keep = owned(user_data, user_data_free);
    const Working t(call, trainer);
    if (!batches) return t->run->set_batches({});
    const ModelSpec& spec = t->model->spec();
    const auto& known = t->model->tokens();
    const BatchLimits limits{sequence_form(spec), t->run->data().tokens,
                             spec.vocabulary,     spec.source_vocabulary(),
                             spec.max_positions,  known ? known->frame : TextFrame()};
    t->run->set_batches([batches, keep, limits](int64_t index, PackedBatchHost& out) {
      trafo_batch batch{};
      batch.struct_size = sizeof batch;
      const int32_t result = call_host(batches, keep.get(), index, &batch);
      require(result == 0, ErrorCode::io, "trafo_batch_fn", "the function returned ", result,
              " for batch ", index);
      pack_rows({batch.sentences, batch.source, batch.source_width, batch.source_lengths,
                 batch.target, batch.target_width, batch.target_lengths},
                limits, out);
    });
  });
}

trafo_error* trafo_corpus_from_function(int64_t pairs, uint64_t identity, trafo_pair_fn function,
                                        void* user_data, void (*user_data_free)(void*),
                                        trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    const auto keep = owned(user_data, user_data_free);
    call.out(out);
    if (!function) call.refuse_argument("function", " is NULL");
    if (pairs < 1 || pairs > std::numeric_limits<int32_t>::max())
      call.refuse_argument("pairs", " must be 1 to ", std::numeric_limits<int32_t>::max(), ", got ",
                           pairs);
    *out = new_handle<trafo_corpus>(
        TextCorpus(std::make_shared<FunctionText>(pairs, identity, function, keep)));
  });
}

trafo_error* trafo_model_write(const trafo_model* model, trafo_write_fn write, void* user_data) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context, CallsBack::yes);
    WriterSink sink(call, write, user_data);
    write_model(sink, *m.context, *m.model);
  });
}

trafo_error* trafo_model_read(trafo_context* context, trafo_read_fn read, void* user_data,
                              int32_t precision, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context, CallsBack::yes);
    const DType dtype = checked_precision(call, precision);
    const std::vector<std::byte> bytes = read_all(call, read, user_data);
    *out = new_handle<trafo_model>(
        call.owner(),
        std::shared_ptr<Model>(load_model(
            c, SafetensorsReader::from_memory(bytes, "the model", ElementTypes::ours_and_codes),
            dtype)));
  });
}

trafo_error* trafo_tokenizer_write(const trafo_tokenizer* tokenizer, trafo_write_fn write,
                                   void* user_data) {
  return api(__func__, [&](const Call& call) {
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    WriterSink sink(call, write, user_data);
    sink.write(std::string_view(subwords.serialized()));
  });
}

trafo_error* trafo_trainer_write(trafo_trainer* trainer, trafo_write_fn write, void* user_data) {
  return api(__func__, [&](const Call& call) {
    const Working t(call, trainer);
    WriterSink sink(call, write, user_data);
    t->run->write_checkpoint(sink);
  });
}

trafo_error* trafo_trainer_read(trafo_trainer* trainer, trafo_read_fn read, void* user_data) {
  return api(__func__, [&](const Call& call) {
    const Working t(call, trainer);
    t->run->read_checkpoint(read_all(call, read, user_data));
  });
}
