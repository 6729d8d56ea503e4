#include "engine/formats/torch/pickle.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <span>

#include "engine/core/checked.h"
#include "engine/core/limits.h"
#include "engine/core/strings/quote.h"
#include "engine/core/strings/utf8.h"
#include "engine/formats/expressible.h"
#include "engine/io/safetensors_header.h"

namespace trafo::interop {
namespace {

constexpr TorchType kTorchTypes[] = {
    {"FloatStorage", DType::f32, "", 4},    {"DoubleStorage", DType::f64, "", 8},
    {"HalfStorage", DType::f32, "F16", 2},  {"BFloat16Storage", DType::bf16, "", 2},
    {"LongStorage", DType::i32, "I64", 8},  {"IntStorage", DType::i32, "", 4},
    {"ShortStorage", DType::i32, "I16", 2}, {"CharStorage", DType::i32, "I8", 1},
    {"ByteStorage", DType::i32, "U8", 1},   {"BoolStorage", DType::i32, "BOOL", 1}};

// The functions that a pickle may call, beside the classes of storages.
enum Callable : size_t { kOrderedDict, kRebuildTensor, kRebuildParameter, kCallables };
constexpr std::string_view kCallableNames[] = {"collections OrderedDict",
                                               "torch._utils _rebuild_tensor_v2",
                                               "torch._utils _rebuild_parameter"};

// A tensor of a table takes 22 values. With these limits, reading takes at most kRefusalBytes.
constexpr size_t kPickledValues = 1'500'000;
constexpr size_t kMemoValues = size_t{1} << 20;
constexpr size_t kGlobalBytes = 256;

// Where another one is expected, a value's kind is in the message.
enum class Kind : uint8_t {
  none,
  flag,
  number,
  text,
  tuple,
  dict,
  list,
  global,
  storage,
  tensor,
  mark
};
constexpr const char* kKindNames[] = {"None",      "a bool",   "a number", "a text",
                                      "a tuple",   "a dict",   "a list",   "a global",
                                      "a storage", "a tensor", "a mark"};

struct PickledValue {
  Kind kind = Kind::none;
  uint32_t count = 0;  // bytes of a text, values of a tuple, entries of a dict or list
  // A flag or number itself; where a text begins in the pickle, or a tuple in the items; of a dict
  // or list the last of its entries, -1 without one; the index of a global, storage or tensor.
  int64_t content = 0;
};

class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& label) : bytes_(bytes), label_(label) {}

  uint32_t run();  // the value of the pickle
  PickledTable table(uint32_t value);
  bool flag_of(uint32_t dict, std::string_view key) const;
  std::vector<std::string> texts(uint32_t list) const;
  size_t position() const { return position_; }

 private:
  struct Entry {
    uint32_t key, value;
    int32_t previous;  // of the same dict or list, -1: this is its first
  };

  template <class... Args>
  [[noreturn]] void damaged(const Args&... reason) const {
    fail(ErrorCode::corrupt_file, kOrigin, label_, ": ", reason..., ", at byte ", start_,
         " of the pickle");
  }
  template <class... Args>
  [[noreturn]] void refuse(const Args&... reason) const {
    fail(ErrorCode::unsupported, kOrigin, label_, ": ", reason...,
         "; a table of tensors is read, and nothing else of a pickle. transformers can save the "
         "model as model.safetensors");
  }

  std::string_view take(size_t count) {
    if (count > bytes_.size() - position_) damaged("the pickle ends too early");
    const std::string_view part = bytes_.substr(position_, count);
    position_ += count;
    return part;
  }
  template <class T>
  T take_number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  void push_reference(uint32_t value) {
    if (++pushed_ > kPickledValues)
      damaged("there are more than ", kPickledValues, " values, which no table of tensors has");
    stack_.push_back(value);
  }
  void push(Kind kind, int64_t content = 0, size_t count = 0) {
    values_.push_back({kind, static_cast<uint32_t>(count), content});
    push_reference(static_cast<uint32_t>(values_.size() - 1));
  }
  uint32_t pop() {
    if (stack_.empty()) damaged("a value is missing");
    const uint32_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  uint32_t top() const {
    if (stack_.empty()) damaged("a value is missing");
    return stack_.back();
  }
  // The place in the stack after the last mark.
  size_t after_mark() const {
    for (size_t i = stack_.size(); i-- > 0;)
      if (values_[stack_[i]].kind == Kind::mark) return i + 1;
    damaged("a mark is missing");
  }

  const PickledValue& expect(uint32_t value, Kind kind) const {
    const PickledValue& found = values_[value];
    if (found.kind != kind)
      damaged(kKindNames[static_cast<size_t>(found.kind)], " instead of ",
              kKindNames[static_cast<size_t>(kind)]);
    return found;
  }
  int64_t number(uint32_t value) const { return expect(value, Kind::number).content; }
  std::string_view text(uint32_t value) const {
    const PickledValue& found = expect(value, Kind::text);
    return bytes_.substr(static_cast<size_t>(found.content), found.count);
  }
  std::span<const uint32_t> tuple(uint32_t value) const {
    const PickledValue& found = expect(value, Kind::tuple);
    return std::span(items_).subspan(static_cast<size_t>(found.content), found.count);
  }
  std::vector<int64_t> numbers(uint32_t value) const {
    std::vector<int64_t> all;
    if (tuple(value).size() > limits::kRank)
      damaged("a tensor has more than ", limits::kRank, " dimensions");
    for (const uint32_t item : tuple(value)) all.push_back(number(item));
    return all;
  }
  // In their order.
  std::vector<Entry> entries(const PickledValue& dict_or_list) const {
    if (dict_or_list.count > limits::kTensors)
      damaged("it has more than ", limits::kTensors, " entries");
    std::vector<Entry> all;
    for (int64_t i = dict_or_list.content; i >= 0; i = all.back().previous)
      all.push_back(entries_[static_cast<size_t>(i)]);
    std::reverse(all.begin(), all.end());
    return all;
  }

  bool step();  // false: the pickle ends
  void make_tuple(size_t from);
  void add_entries(Kind kind, size_t from);
  void read_global();
  void read_text();
  void remember(size_t place);
  void recall(size_t place);
  void open_storage();
  void call();
  void call_rebuild_tensor(std::span<const uint32_t> arguments);

  std::string_view bytes_;
  const std::string& label_;
  size_t position_ = 0, start_ = 0;  // start_: of the opcode that is read
  size_t pushed_ = 0;
  std::deque<PickledValue> values_;
  std::vector<uint32_t> stack_, items_;
  std::deque<Entry> entries_;
  std::vector<int32_t> memo_;  // -1: nothing
  std::map<std::string_view, size_t> storage_of_key_;
  PickledTable table_;
};

uint32_t PickleReader::run() {
  while (step()) continue;
  if (stack_.size() != 1) damaged("it ends with ", stack_.size(), " values");
  return stack_[0];
}

bool PickleReader::step() {
  start_ = position_;
  const auto opcode = static_cast<unsigned char>(take(1)[0]);
  switch (opcode) {
    case 0x80: {
      const auto protocol = take_number<uint8_t>();
      if (protocol != 2 && protocol != 3)
        refuse("it is a pickle of protocol ", int{protocol}, ", torch writes protocol 2");
      return true;
    }
    case '.':
      return false;
    case '(':
      push(Kind::mark);
      return true;
    case 'N':
      push(Kind::none);
      return true;
    case 0x88:
    case 0x89:
      push(Kind::flag, opcode == 0x88);
      return true;
    case 'K':
      push(Kind::number, take_number<uint8_t>());
      return true;
    case 'M':
      push(Kind::number, take_number<uint16_t>());
      return true;
    case 'J':
      push(Kind::number, take_number<int32_t>());
      return true;
    case 0x8a: {
      const auto count = take_number<uint8_t>();
      int64_t value = 0;
      if (count > sizeof value) damaged("a number has ", int{count}, " bytes");
      const std::string_view digits = take(count);
      if (count > 0 && (digits.back() & 0x80) != 0) value = -1;
      std::memcpy(&value, digits.data(), count);
      push(Kind::number, value);
      return true;
    }
    case 'X':
      read_text();
      return true;
    case ')':
      push(Kind::tuple, static_cast<int64_t>(items_.size()));
      return true;
    case 't': {
      const size_t from = after_mark();
      make_tuple(from);
      return true;
    }
    case 0x85:
    case 0x86:
    case 0x87: {
      const size_t count = opcode - 0x84u;
      if (count > stack_.size()) damaged("a value is missing");
      stack_.insert(stack_.end() - static_cast<std::ptrdiff_t>(count), 0);  // in place of a mark
      make_tuple(stack_.size() - count);
      return true;
    }
    case '}':
      push(Kind::dict, -1);
      return true;
    case ']':
      push(Kind::list, -1);
      return true;
    case 's':
      if (stack_.size() < 3) damaged("a value is missing");
      stack_.insert(stack_.end() - 2, 0);
      add_entries(Kind::dict, stack_.size() - 2);
      return true;
    case 'u':
      add_entries(Kind::dict, after_mark());
      return true;
    case 'a':
      if (stack_.size() < 2) damaged("a value is missing");
      stack_.insert(stack_.end() - 1, 0);
      add_entries(Kind::list, stack_.size() - 1);
      return true;
    case 'e':
      add_entries(Kind::list, after_mark());
      return true;
    case 'q':
      remember(take_number<uint8_t>());
      return true;
    case 'r':
      remember(take_number<uint32_t>());
      return true;
    case 'h':
      recall(take_number<uint8_t>());
      return true;
    case 'j':
      recall(take_number<uint32_t>());
      return true;
    case 'c':
      read_global();
      return true;
    case 'Q':
      open_storage();
      return true;
    case 'R':
      call();
      return true;
    case 'b':  // attributes of a dict, such as state_dict()._metadata, are of no use here
      pop();
      if (values_[top()].kind != Kind::dict)
        refuse("the opcode BUILD sets attributes of ",
               kKindNames[static_cast<size_t>(values_[top()].kind)]);
      return true;
    default: {
      constexpr char kDigits[] = "0123456789abcdef";
      const char code[] = {'0', 'x', kDigits[opcode >> 4], kDigits[opcode & 15], '\0'};
      refuse("the opcode ", code, " at byte ", start_, " of the pickle is not one of such a table");
    }
  }
}

// Of the values of the stack from `from` on, with the mark before them.
void PickleReader::make_tuple(size_t from) {
  const auto begin = static_cast<int64_t>(items_.size());
  const size_t count = stack_.size() - from;
  items_.insert(items_.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
  stack_.resize(from - 1);
  push(Kind::tuple, begin, count);
}

// The values of the stack from `from` on; before them are the mark and the dict or list.
void PickleReader::add_entries(Kind kind, size_t from) {
  if (from < 2) damaged("a value is missing");
  const size_t width = kind == Kind::dict ? 2 : 1;
  if ((stack_.size() - from) % width != 0) damaged("a key has no value");
  expect(stack_[from - 2], kind);
  PickledValue& target = values_[stack_[from - 2]];
  for (size_t i = from; i < stack_.size(); i += width) {
    entries_.push_back({stack_[i], stack_[i + width - 1], static_cast<int32_t>(target.content)});
    target.content = static_cast<int64_t>(entries_.size() - 1);
    ++target.count;
  }
  stack_.resize(from - 1);
}

void PickleReader::read_text() {
  const auto count = take_number<uint32_t>();
  const size_t begin = position_;
  if (find_invalid_utf8(take(count)) != kValidUtf8) damaged("a text is not UTF-8");
  push(Kind::text, static_cast<int64_t>(begin), count);
}

void PickleReader::remember(size_t place) {
  if (place >= kMemoValues) damaged("the place ", place, " of the memo is too high");
  if (place >= memo_.size()) memo_.resize(place + 1, -1);
  memo_[place] = static_cast<int32_t>(top());
}

void PickleReader::recall(size_t place) {
  if (place >= memo_.size() || memo_[place] < 0) damaged("the memo has nothing at ", place);
  push_reference(static_cast<uint32_t>(memo_[place]));
}

void PickleReader::read_global() {
  std::string_view name = bytes_.substr(position_, kGlobalBytes);
  const size_t module = name.find('\n'),
               end = module == name.npos ? module : name.find('\n', module + 1);
  if (end == name.npos) damaged("the name of a global has no end");
  position_ += end + 1;
  const std::string called =
      concat(name.substr(0, module), " ", name.substr(module + 1, end - module - 1));
  const auto callable = std::find(std::begin(kCallableNames), std::end(kCallableNames), called);
  size_t index = static_cast<size_t>(callable - std::begin(kCallableNames));
  if (callable == std::end(kCallableNames)) {
    const auto type = std::find_if(
        std::begin(kTorchTypes), std::end(kTorchTypes),
        [&](const TorchType& known) { return called == concat("torch ", known.storage); });
    if (type == std::end(kTorchTypes))
      refuse("the global ", quote(called), " is not one of such a table");
    index = kCallables + static_cast<size_t>(type - std::begin(kTorchTypes));
  }
  push(Kind::global, static_cast<int64_t>(index));
}

// ("storage", class, key, device, elements), and in the older format a view, which is None.
void PickleReader::open_storage() {
  const std::span<const uint32_t> parts = tuple(pop());
  if (parts.size() != 5 && parts.size() != 6) damaged("the name of a storage has no five parts");
  if (text(parts[0]) != "storage") refuse("it refers to ", quote(text(parts[0])));
  const auto type = static_cast<size_t>(expect(parts[1], Kind::global).content);
  if (type < kCallables) damaged("the type of a storage is no type");
  if (parts.size() == 6 && values_[parts[5]].kind != Kind::none)
    refuse("a storage is a view of another one");
  const std::string_view key = text(parts[2]);
  const int64_t elements = number(parts[4]);
  if (key.empty() || key.size() > limits::kNameBytes || elements < 0 ||
      elements > limits::kDimension)
    damaged("a storage has the key ", quote(key), " and ", elements, " elements");
  const PickledStorage storage{std::string(key), &kTorchTypes[type - kCallables],
                               static_cast<uint64_t>(elements)};
  const auto [known, added] = storage_of_key_.try_emplace(key, table_.storages.size());
  if (added) {
    if (table_.storages.size() == limits::kTensors)
      damaged("there are more than ", limits::kTensors, " storages");
    table_.storages.push_back(storage);
  } else if (const PickledStorage& first = table_.storages[known->second];
             first.type != storage.type || first.elements != storage.elements) {
    damaged("the storage ", quote(key), " has two types or sizes");
  }
  push(Kind::storage, static_cast<int64_t>(known->second));
}

void PickleReader::call() {
  const std::span<const uint32_t> arguments = tuple(pop());
  switch (expect(pop(), Kind::global).content) {
    case kOrderedDict:
      if (!arguments.empty()) damaged("an OrderedDict is made of arguments");
      push(Kind::dict, -1);
      return;
    case kRebuildTensor:
      call_rebuild_tensor(arguments);
      return;
    case kRebuildParameter:  // of the tensor, whether it has a gradient, and hooks
      if (arguments.size() != 3) damaged("a parameter has ", arguments.size(), " arguments");
      expect(arguments[0], Kind::tensor);
      push_reference(arguments[0]);
      return;
    default:
      damaged("a type of storages is called");
  }
}

// (storage, offset, shape, strides, whether it has a gradient, hooks), and there may be metadata.
void PickleReader::call_rebuild_tensor(std::span<const uint32_t> arguments) {
  if (arguments.size() != 6 && arguments.size() != 7)
    damaged("a tensor has ", arguments.size(), " arguments");
  const auto storage = static_cast<size_t>(expect(arguments[0], Kind::storage).content);
  const int64_t offset = number(arguments[1]);
  PickledTensor tensor{{}, storage, 0, numbers(arguments[2]), numbers(arguments[3])};
  const PickledStorage& of = table_.storages[storage];
  const auto outside = [&] {
    damaged("a tensor of the storage ", quote(of.key), " with ", of.elements,
            " elements is not within it");
  };
  const int64_t bytes = tensor_bytes(tensor.shape, of.type->dtype, of.type->foreign);
  if (bytes < 0 || offset < 0 || tensor.shape.size() != tensor.strides.size()) outside();
  tensor.offset = static_cast<uint64_t>(offset);
  // The number of elements between the first and the last one, both included.
  int64_t reach = 1, elements = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    elements *= tensor.shape[i];  // no overflow: `bytes` has none
    int64_t step = 0;
    if (tensor.strides[i] < 0 ||
        (tensor.shape[i] > 1 &&
         (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &step) ||
          __builtin_add_overflow(reach, step, &reach))))
      outside();
  }
  if (elements > 0) {
    int64_t end = 0;
    if (__builtin_add_overflow(offset, reach, &end) || static_cast<uint64_t>(end) > of.elements)
      outside();
    if (elements > reach) refuse("a tensor has elements of its storage more than once");
  }
  if (table_.tensors.size() == limits::kTensors)
    damaged("there are more than ", limits::kTensors, " tensors");
  table_.tensors.push_back(std::move(tensor));
  push(Kind::tensor, static_cast<int64_t>(table_.tensors.size() - 1));
}

PickledTable PickleReader::table(uint32_t value) {
  if (values_[value].kind != Kind::dict)
    refuse("it holds ", kKindNames[static_cast<size_t>(values_[value].kind)]);
  PickledTable named;
  std::set<std::string_view> names;
  for (const Entry& entry : entries(values_[value])) {
    const std::string_view name = text(entry.key);
    if (!is_valid_utf8_without_nul(name) || name.empty() || name.size() > limits::kNameBytes)
      damaged("the name of a tensor is empty, too long or has a NUL byte");
    const PickledValue& tensor = values_[entry.value];
    if (tensor.kind != Kind::tensor)
      refuse("the value of ", quote(name), " is no tensor but ",
             kKindNames[static_cast<size_t>(tensor.kind)]);
    if (!names.insert(name).second) damaged("there are two tensors named ", quote(name));
    named.tensors.push_back(table_.tensors[static_cast<size_t>(tensor.content)]);
    named.tensors.back().name = name;
  }
  named.storages = std::move(table_.storages);
  named.pickle_bytes = position_;
  return named;
}

bool PickleReader::flag_of(uint32_t dict, std::string_view key) const {
  for (const Entry& entry : entries(expect(dict, Kind::dict)))
    if (text(entry.key) == key) return expect(entry.value, Kind::flag).content != 0;
  damaged("there is no ", key);
}

std::vector<std::string> PickleReader::texts(uint32_t list) const {
  std::vector<std::string> all;
  for (const Entry& entry : entries(expect(list, Kind::list))) all.emplace_back(text(entry.value));
  return all;
}

}  // namespace

PickledTable read_pickled_table(std::string_view bytes, const std::string& label) {
  PickleReader reader(bytes, label);
  return reader.table(reader.run());
}

PickledSystem read_pickled_system(std::string_view bytes, const std::string& label) {
  PickleReader reader(bytes, label);
  const uint32_t value = reader.run();
  return {reader.flag_of(value, "little_endian"), reader.position()};
}

PickledKeys read_pickled_keys(std::string_view bytes, const std::string& label) {
  PickleReader reader(bytes, label);
  const uint32_t value = reader.run();
  return {reader.texts(value), reader.position()};
}

}  // namespace trafo::interop
