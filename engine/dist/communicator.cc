#include "engine/dist/communicator.h"

#include <algorithm>

#include "engine/core/strings/json.h"

namespace trafo {
namespace {

constexpr const char* kGroupOrigin = "group";
constexpr size_t kShownValue = 80;  // characters of a value in a message

std::string shown(const std::string& value) {
  if (value.empty()) return "not set";
  return value.size() <= kShownValue ? value : value.substr(0, kShownValue) + "...";
}

}  // namespace

void require_rank(int64_t rank, int64_t size) {
  require(size >= 1 && size <= 65536, ErrorCode::invalid_argument, kGroupOrigin,
          "a group has 1 to 65536 ranks, got ", size);
  require(rank >= 0 && rank < size, ErrorCode::invalid_argument, kGroupOrigin,
          "the rank must be 0 to ", size - 1, ", got ", rank);
}

void Communicator::all_gather(void* whole, std::span<const size_t> begins) {
  auto* bytes = static_cast<std::byte*>(whole);
  const auto part = [&](int r) {
    return std::pair(bytes + begins[static_cast<size_t>(r)],
                     begins[static_cast<size_t>(r) + 1] - begins[static_cast<size_t>(r)]);
  };
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  const auto send = [&](int peer, int whose) {
    const auto [place, count] = part(whose);
    if (count > 0) sends.push_back({peer, place, count});
  };
  const auto receive = [&](int peer, int whose) {
    const auto [place, count] = part(whose);
    if (count > 0) receives.push_back({peer, place, count});
  };
  const int per_host = ranks_per_host();
  // To the ranks of the same number on other hosts; with one rank a host these are all.
  for (int peer = rank() % per_host; peer < size(); peer += per_host) {
    if (peer == rank()) continue;
    send(peer, rank());
    receive(peer, peer);
  }
  exchange(sends, receives);
  if (per_host == 1) return;
  sends.clear();
  receives.clear();
  const int first = rank() / per_host * per_host;
  for (int peer = first; peer < first + per_host; ++peer) {
    if (peer == rank()) continue;
    for (int host = 0; host < size(); host += per_host) {
      send(peer, host + rank() - first);
      receive(peer, host + peer - first);
    }
  }
  exchange(sends, receives);
}

void Communicator::all_gather_after(int mark, void* whole, std::span<const ByteRange> ranges) {
  auto* bytes = static_cast<std::byte*>(whole);
  const auto [begin, end] = ranges[static_cast<size_t>(rank())];
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto [first, past] = ranges[static_cast<size_t>(peer)];
    if (end > begin) sends.push_back({peer, bytes + begin, end - begin});
    if (past > first) receives.push_back({peer, bytes + first, past - first});
  }
  exchange_after(mark, sends, receives);
}

void Communicator::broadcast(void* data, size_t bytes, int root) {
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  if (bytes > 0 && rank() != root) receives.push_back({root, data, bytes});
  for (int peer = 0; bytes > 0 && rank() == root && peer < size(); ++peer)
    if (peer != root) sends.push_back({peer, data, bytes});
  exchange(sends, receives);
}

void agree(Communicator& group, const std::optional<Error>& error) {
  std::string mine;
  if (error)
    mine = Json(Json::Object{{"code", static_cast<int64_t>(error->code())},
                             {"origin", error->origin()},
                             {"message", error->message()}})
               .dump();
  const std::vector<std::string> all = group.host_all_gather(mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const Json json = parse_json(all[rank], kGroupOrigin, "an error of another rank");
    const JsonFields fields(json, kGroupOrigin, "an error of another rank");
    int64_t code = 0;
    std::string origin, message;
    fields.take("code", code);
    fields.take("origin", origin);
    fields.take("message", message);
    throw AgreedError(static_cast<ErrorCode>(code), origin, concat("rank ", rank, ": ", message));
  }
}

void require_same(Communicator& group, std::span<const GroupField> fields) {
  Json::List mine;
  for (const auto& [name, value] : fields) mine.push_back(Json::List{name, value});
  const std::vector<std::string> all = group.host_all_gather(Json(mine).dump());
  const auto fields_of = [](const std::string& text) {
    std::vector<GroupField> read;
    const Json json = parse_json(text, kGroupOrigin, "fields of another rank");
    const auto* list = json.as<Json::List>();
    require(list != nullptr, ErrorCode::internal, kGroupOrigin, "another rank sent no list");
    for (const Json& each : *list) {
      const auto* pair = each.as<Json::List>();
      require(pair != nullptr && pair->size() == 2 && (*pair)[0].as<std::string>() != nullptr &&
                  (*pair)[1].as<std::string>() != nullptr,
              ErrorCode::internal, kGroupOrigin, "another rank sent no field");
      read.emplace_back(*(*pair)[0].as<std::string>(), *(*pair)[1].as<std::string>());
    }
    return read;
  };
  const std::vector<GroupField> first = fields_of(all.front());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    const std::vector<GroupField> other = fields_of(all[rank]);
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const GroupField here = i < first.size() ? first[i] : GroupField{};
      const GroupField there = i < other.size() ? other[i] : GroupField{};
      if (here == there) continue;
      throw AgreedError(ErrorCode::invalid_argument, kGroupOrigin,
                        concat("rank ", rank, " differs from rank 0: ",
                               here.first.empty() ? there.first : here.first, " is ",
                               shown(there.second), ", on rank 0 it is ", shown(here.second)));
    }
  }
}

}  // namespace trafo
