#include "engine/backend/cuda/nccl_link.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/nccl_api.h"
#include "engine/backend/cuda/stream_link.h"
#include "engine/os/process.h"

namespace trafo {
namespace {

constexpr const char* kNcclOrigin = "nccl";
constexpr const char* kNcclLibrary = "libnccl.so.2";

struct Nccl {
  cuda::NcclTable table{};
  std::string plugin;
};

Nccl find_nccl() {
  const PluginSymbol entry = cuda_plugin_symbol(cuda::kNcclEntryName);
  Nccl nccl;
  reinterpret_cast<cuda::NcclEntry>(entry.address)(&nccl.table);
  nccl.plugin = entry.path;
  return nccl;
}

// A program with more rights than its user ignores the variable.
std::vector<std::string> nccl_candidates(const std::string& plugin) {
  if (const char* named = os::trusted_environment("TRAFO_NCCL_LIBRARY"); named && *named) {
    require(named[0] == '/', ErrorCode::unsupported, kNcclOrigin, "TRAFO_NCCL_LIBRARY is '", named,
            "'; it must be an absolute path");
    return {named};
  }
  std::vector<std::string> paths;
  if (const auto folder = std::filesystem::path(plugin).parent_path(); folder.is_absolute())
    paths.push_back((folder / kNcclLibrary).string());
  paths.emplace_back(kNcclLibrary);
  return paths;
}

const cuda::NcclTable& nccl() {
  static const Nccl* const loaded = [] {
    auto found = std::make_unique<Nccl>(find_nccl());
    std::string reasons;
    int32_t version = 0;
    for (const std::string& path : nccl_candidates(found->plugin)) {
      LinkWhy why;
      if (found->table.load(path.c_str(), &version, why.why()) == cuda::kSuccess)
        return static_cast<const Nccl*>(found.release());
      reasons += concat("\n  ", path, ": ", why.text);
    }
    fail(ErrorCode::unsupported, kNcclOrigin, "NCCL could not be loaded:", reasons, "\n",
         kNcclLibrary,
         " comes with NVIDIA's packages or with \"pip install "
         "nvidia-nccl-cu13\"; put its folder on LD_LIBRARY_PATH");
  }();
  return loaded->table;
}

class NcclLink final : public StreamLink {
 public:
  NcclLink(Backend& backend, std::string_view id, int rank, int size)
      : StreamLink(nccl().streams, kNcclOrigin), table_(nccl()) {
    LinkWhy why;
    const int32_t result =
        table_.open_link(backend.stream(), id.data(), rank, size, &link_, why.why());
    if (result != cuda::kSuccess && link_) table_.close_link(link_);
    check(result, why);
  }
  ~NcclLink() override { table_.close_link(link_); }

  void begin_exchange(std::span<const PeerPiece> pieces, int after) override {
    pieces_.clear();
    for (const PeerPiece& piece : pieces)
      pieces_.push_back({piece.peer, piece.receive ? 1 : 0, piece.data, piece.bytes});
    LinkWhy why;
    check(table_.exchange(link_, pieces_.data(), static_cast<int32_t>(pieces_.size()), after,
                          why.why()),
          why);
  }
  bool issued() override {
    LinkWhy why;
    const int32_t state = table_.link_state(link_, why.why());
    if (state == cuda::kNcclPending) return false;
    check(state, why);
    return true;
  }
  void abort() noexcept override { table_.abort_link(link_); }

 private:
  const cuda::NcclTable& table_;
  std::vector<cuda::NcclPiece> pieces_;
};

class NcclLinks final : public LinkMaker {
 public:
  const char* name() const override { return "nccl"; }
  void prepare(const Backend& backend) override {
    require(backend.device().kind == DeviceKind::cuda, ErrorCode::unsupported, kNcclOrigin,
            "NCCL moves memory of GPUs, this rank computes on ", device_name(backend.device()));
    load_nccl();
  }
  std::string new_id() override {
    std::string id(cuda::kNcclIdBytes, '\0');
    LinkWhy why;
    require(nccl().new_id(id.data(), why.why()) == cuda::kSuccess, ErrorCode::internal, kNcclOrigin,
            why.text);
    return id;
  }
  std::unique_ptr<PeerLink> open(Backend& backend, std::string_view id, int rank,
                                 int size) override {
    require(id.size() == cuda::kNcclIdBytes, ErrorCode::internal, kNcclOrigin,
            "the id of another rank has ", id.size(), " bytes");
    return std::make_unique<NcclLink>(backend, id, rank, size);
  }
};

}  // namespace

void load_nccl() {
  nccl();
}

std::unique_ptr<LinkMaker> make_nccl_links() {
  return std::make_unique<NcclLinks>();
}

}  // namespace trafo
