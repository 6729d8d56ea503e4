#include "engine/train/parallel/shard_transfer.h"

#include <algorithm>

namespace trafo {
namespace {

constexpr size_t kTransferBytes = 64 << 20;  // of device memory beside the tensors, on rank 0

// visit(peer, at, bytes): `bytes` bytes from byte `at` of the peer's part on.
template <class Visit>
void for_each_piece(const Communicator& group, std::span<const size_t> begins, Visit visit) {
  for (int peer = 1; peer < group.size(); ++peer) {
    const size_t bytes = begins[static_cast<size_t>(peer) + 1] - begins[static_cast<size_t>(peer)];
    for (size_t at = 0; at < bytes; at += kTransferBytes)
      visit(peer, at, std::min(kTransferBytes, bytes - at));
  }
}

Tensor staging(Context& context, const Communicator& group, std::span<const size_t> begins) {
  size_t most = 0;
  if (group.rank() == 0)
    for_each_piece(group, begins, [&](int, size_t, size_t bytes) { most = std::max(most, bytes); });
  return context.empty({static_cast<int64_t>((most + 3) / 4)}, DType::i32);
}

std::byte* byte_of_part(const Tensor& tensor, size_t at) {
  return static_cast<std::byte*>(tensor.raw()) + at;
}

}  // namespace

void gather_to_root(Context& context, Communicator& group, const Tensor& part,
                    std::span<const size_t> begins, std::span<std::byte> whole) {
  const Tensor buffer = staging(context, group, begins);
  if (group.rank() == 0) context.backend().copy_to_host(whole.data(), part.raw(), part.bytes());
  for_each_piece(group, begins, [&](int peer, size_t at, size_t bytes) {
    std::vector<SendPiece> sends;
    std::vector<ReceivePiece> receives;
    if (group.rank() == peer) sends.push_back({0, byte_of_part(part, at), bytes});
    if (group.rank() == 0) receives.push_back({peer, buffer.raw(), bytes});
    group.exchange(sends, receives);
    if (group.rank() == 0)
      context.backend().copy_to_host(whole.data() + begins[static_cast<size_t>(peer)] + at,
                                     buffer.raw(), bytes);
  });
}

void scatter_from_root(Context& context, Communicator& group, std::span<const std::byte> whole,
                       std::span<const size_t> begins, const Tensor& part) {
  const Tensor buffer = staging(context, group, begins);
  if (group.rank() == 0) context.backend().copy_from_host(part.raw(), whole.data(), part.bytes());
  for_each_piece(group, begins, [&](int peer, size_t at, size_t bytes) {
    std::vector<SendPiece> sends;
    std::vector<ReceivePiece> receives;
    if (group.rank() == 0) {
      context.backend().copy_from_host(
          buffer.raw(), whole.data() + begins[static_cast<size_t>(peer)] + at, bytes);
      sends.push_back({peer, buffer.raw(), bytes});
    }
    if (group.rank() == peer) receives.push_back({0, byte_of_part(part, at), bytes});
    group.exchange(sends, receives);
  });
  part.mark_written();
}

}  // namespace trafo
