#include "engine/backend/cuda/copy_link.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/stream_link.h"

namespace trafo {
namespace {

constexpr const char* kCopyOrigin = "copies";

// State that the links of a group share. Who calls an end of a peer holds the lock.
struct CopyBoard {
  // From one rank to another. The newest offer is only replaced once it has been taken, and the
  // offering stream waits for that.
  struct Offer {
    uint64_t offered = 0, taken = 0;  // so often
    std::vector<PeerPiece> pieces;
  };

  explicit CopyBoard(int size)
      : ends(static_cast<size_t>(size), nullptr),
        offers(static_cast<size_t>(size), std::vector<Offer>(static_cast<size_t>(size))) {}

  std::mutex mutex;
  std::vector<void*> ends;  // by rank; null: not opened yet, or given up
  size_t opened = 0;
  std::vector<std::vector<Offer>> offers;  // by rank that offers, by rank that takes
};

std::shared_ptr<CopyBoard> board_of(const std::string& id, int size) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<CopyBoard>> boards;
  const std::lock_guard lock(mutex);
  std::erase_if(boards, [](const auto& each) { return each.second.expired(); });
  std::shared_ptr<CopyBoard> board = boards[id].lock();
  if (!board) boards[id] = board = std::make_shared<CopyBoard>(size);
  return board;
}

class CopyLink final : public StreamLink {
 public:
  CopyLink(const cuda::CopyTable& table, void* device, std::string_view id, int rank, int size)
      : StreamLink(table.streams, kCopyOrigin),
        table_(table),
        board_(board_of(std::string(id), size)),
        rank_(static_cast<size_t>(rank)),
        size_(static_cast<size_t>(size)),
        takes_(size_),
        gives_(size_) {
    LinkWhy why;
    const int32_t result = table_.open_end(device, size, &link_, why.why());
    if (result != cuda::kSuccess && link_) table_.close_end(link_);
    check(result, why);
    const std::lock_guard lock(board_->mutex);
    board_->ends[rank_] = link_;
    ++board_->opened;
  }
  ~CopyLink() override {
    abort();
    table_.close_end(link_);
  }

  void begin_exchange(std::span<const PeerPiece> pieces, int after) override {
    LinkWhy why;
    check(table_.offer(link_, after, why.why()), why);
    const std::lock_guard lock(board_->mutex);
    for (const PeerPiece& piece : pieces) {
      const auto peer = static_cast<size_t>(piece.peer);
      if (piece.receive) {
        takes_[peer].push_back(piece);
        continue;
      }
      CopyBoard::Offer& offer = board_->offers[rank_][peer];
      if (!gives_[peer]) {
        gives_[peer] = true;
        offer.pieces.clear();
        ++offer.offered;
      }
      offer.pieces.push_back(piece);
    }
  }

  bool issued() override {
    const std::lock_guard lock(board_->mutex);
    if (!reached_) {
      if (board_->opened < size_) return false;
      reach_peers();
    }
    bool all = true;
    // Each rank begins with another peer.
    for (size_t i = 1; i < size_; ++i) {
      const size_t peer = (rank_ + i) % size_;
      if (!takes_[peer].empty()) all = take(peer) && all;
    }
    for (size_t peer = 0; peer < size_; ++peer)
      if (gives_[peer]) all = await_taken(peer) && all;
    return all;
  }

  // Behind it peers may free what this rank has read, and this rank what they have.
  void abort() noexcept override {
    const std::lock_guard lock(board_->mutex);
    if (board_->ends[rank_] == nullptr) return;
    board_->ends[rank_] = nullptr;
    for (size_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      if (board_->offers[peer][rank_].taken > 0) table_.finish(link_, static_cast<int32_t>(peer));
      if (board_->ends[peer] != nullptr && board_->offers[rank_][peer].taken > 0)
        table_.finish(board_->ends[peer], static_cast<int32_t>(rank_));
    }
  }

 private:
  void reach_peers() {
    for (size_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || board_->ends[peer] == nullptr) continue;
      LinkWhy why;
      check(table_.reach(link_, board_->ends[peer], why.why()), why);
    }
    reached_ = true;
  }

  // False: the peer has not offered yet, or has left.
  bool take(size_t peer) {
    CopyBoard::Offer& offer = board_->offers[peer][rank_];
    if (board_->ends[peer] == nullptr || offer.offered == offer.taken) return false;
    std::vector<PeerPiece>& pieces = takes_[peer];
    const bool same =
        std::equal(pieces.begin(), pieces.end(), offer.pieces.begin(), offer.pieces.end(),
                   [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
    require(same, ErrorCode::internal, kCopyOrigin, "rank ", peer, " and rank ", rank_,
            " exchange different pieces");
    copies_.clear();
    for (size_t i = 0; i < pieces.size(); ++i)
      copies_.push_back({pieces[i].data, offer.pieces[i].data, pieces[i].bytes});
    LinkWhy why;
    check(table_.take(link_, static_cast<int32_t>(peer), board_->ends[peer], copies_.data(),
                      static_cast<int32_t>(copies_.size()), why.why()),
          why);
    ++offer.taken;
    pieces.clear();
    return true;
  }

  // False: the peer has not issued its copies yet. One that has left since then has waited for
  // them.
  bool await_taken(size_t peer) {
    const CopyBoard::Offer& offer = board_->offers[rank_][peer];
    if (offer.taken < offer.offered) return false;
    LinkWhy why;
    if (board_->ends[peer] != nullptr)
      check(table_.await_taken(link_, static_cast<int32_t>(rank_), board_->ends[peer], why.why()),
            why);
    gives_[peer] = false;
    return true;
  }

  const cuda::CopyTable& table_;
  const std::shared_ptr<CopyBoard> board_;
  const size_t rank_, size_;
  bool reached_ = false;
  // Of the exchange that is being issued, by peer: what is still to be copied from it, and whether
  // it has still to copy from here.
  std::vector<std::vector<PeerPiece>> takes_;
  std::vector<bool> gives_;
  std::vector<cuda::CopyPiece> copies_;
};

class CopyLinks final : public LinkMaker {
 public:
  explicit CopyLinks(const cuda::CopyTable* table) : table_(table) {}
  const char* name() const override { return "local"; }
  void prepare(const Backend&) override {
    if (table_ == nullptr) table_ = &table_of_plugin();
  }
  std::string new_id() override {
    static std::atomic<uint64_t> made{0};
    return concat("copies ", made.fetch_add(1));
  }
  std::unique_ptr<PeerLink> open(Backend& backend, std::string_view id, int rank,
                                 int size) override {
    return std::make_unique<CopyLink>(*table_, backend.stream(), id, rank, size);
  }

 private:
  static const cuda::CopyTable& table_of_plugin() {
    static const cuda::CopyTable table = [] {
      cuda::CopyTable filled{};
      const PluginSymbol entry = cuda_plugin_symbol(cuda::kCopyEntryName);
      reinterpret_cast<cuda::CopyEntry>(entry.address)(&filled);
      return filled;
    }();
    return table;
  }

  const cuda::CopyTable* table_;
};

}  // namespace

std::unique_ptr<LinkMaker> make_copy_links() {
  return std::make_unique<CopyLinks>(nullptr);
}

std::unique_ptr<LinkMaker> make_copy_links(const cuda::CopyTable& table) {
  return std::make_unique<CopyLinks>(&table);
}

}  // namespace trafo
