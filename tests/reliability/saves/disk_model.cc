#include "tests/reliability/saves/disk_model.h"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace trafo::testing {

namespace fs = std::filesystem;

namespace {

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file whose length is durable and whose new bytes are not, or only some of them.
std::string torn(const std::string& durable, const std::string& newer, std::mt19937_64& random) {
  if (newer == durable) return durable;
  switch (random() % 4) {
    case 0:
      return durable;
    case 1:
      return newer;
    case 2:
      return newer.substr(0, random() % (newer.size() + 1));
    default: {
      std::string zeros = newer;
      for (size_t i = durable.size(); i < zeros.size(); ++i) zeros[i] = '\0';
      return zeros;
    }
  }
}

}  // namespace

DiskModel::DiskModel(fs::path root) : root_path_(std::move(root)), root_(read(root_path_)) {}

DiskModel::NodePtr DiskModel::read(const fs::path& path) const {
  auto node = std::make_shared<Node>();
  node->is_directory = fs::is_directory(path);
  Version& version = node->versions.emplace_back();
  node->syncs.push_back(0);
  if (!node->is_directory) {
    version.bytes = content_of(path);
    return node;
  }
  for (const auto& entry : fs::directory_iterator(path))
    version.names[entry.path().filename()] = read(entry.path());
  return node;
}

DiskModel::NodePtr DiskModel::find(const std::string& path) const {
  NodePtr node = root_;
  for (const fs::path& part : fs::path(path).lexically_relative(root_path_)) {
    if (part == "." || part.empty()) continue;
    if (part == "..") throw std::logic_error(path + " is outside of the model");
    const auto& names = node->versions.back().names;
    const auto found = names.find(part);
    if (found == names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

std::pair<DiskModel::NodePtr, std::string> DiskModel::parent_of(const std::string& path) const {
  const fs::path parts(path);
  NodePtr parent = find(parts.parent_path());
  if (!parent) throw std::logic_error(path + " has no directory in the model");
  return {std::move(parent), parts.filename()};
}

DiskModel::Version& DiskModel::change(Node& node) {
  Version next = node.versions.back();
  next.after = log_.size();
  return node.versions.emplace_back(std::move(next));
}

void DiskModel::create(const std::string& path) {
  if (find(path)) return;
  const auto [parent, name] = parent_of(path);
  log_.push_back("create " + path);
  auto node = std::make_shared<Node>();
  node->versions.emplace_back().after = log_.size();
  change(*parent).names[name] = std::move(node);
}

void DiskModel::write(const std::string& path, std::span<const std::byte> bytes) {
  log_.push_back("write " + path);
  change(*find(path)).bytes.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void DiskModel::truncate(const std::string& path, uint64_t size) {
  log_.push_back("truncate " + path);
  change(*find(path)).bytes.resize(size);
}

void DiskModel::make_directory(const std::string& path) {
  const auto [parent, name] = parent_of(path);
  log_.push_back("mkdir " + path);
  auto node = std::make_shared<Node>();
  node->is_directory = true;
  node->versions.emplace_back().after = log_.size();
  change(*parent).names[name] = std::move(node);
}

void DiskModel::rename(const std::string& from, const std::string& to) {
  const auto [source, old_name] = parent_of(from);
  const auto [destination, new_name] = parent_of(to);
  if (source != destination) throw std::logic_error("a rename from one directory into another");
  log_.push_back("rename " + to);
  auto& names = change(*source).names;
  NodePtr node = names.at(old_name);
  names.erase(old_name);
  names[new_name] = std::move(node);
}

void DiskModel::remove(const std::string& path) {
  const auto [parent, name] = parent_of(path);
  log_.push_back("remove " + path);
  change(*parent).names.erase(name);
}

void DiskModel::sync(const std::string& path) {
  log_.push_back("sync " + path);
  find(path)->syncs.push_back(log_.size());
}

void DiskModel::crash(size_t count, std::mt19937_64& random, const fs::path& target) const {
  materialise(*root_, count, random, target);
}

void DiskModel::materialise(const Node& node, size_t count, std::mt19937_64& random,
                            const fs::path& target) const {
  size_t durable_until = 0;
  for (const size_t sync : node.syncs)
    if (sync <= count) durable_until = std::max(durable_until, sync);
  // The first version may itself be newer than any sync: then nothing of the node is certain.
  size_t durable = 0, newest = 0;
  for (size_t i = 0; i < node.versions.size(); ++i) {
    if (node.versions[i].after <= durable_until) durable = i;
    if (node.versions[i].after <= count) newest = i;
  }
  const size_t chosen = durable + random() % (newest - durable + 1);
  if (!node.is_directory) {
    std::ofstream out(target, std::ios::binary);
    out << torn(node.versions[durable].bytes, node.versions[newest].bytes, random);
    return;
  }
  fs::create_directory(target);
  for (const auto& [name, child] : node.versions[chosen].names)
    materialise(*child, count, random, target / name);
}

}  // namespace trafo::testing
