// Possible contents of a disk after a loss of power, given the calls that were made before: file
// content is there for certain once the file was synced, a name once its directory was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace trafo::testing {

// Records the changes below one directory, in their order; what is there already is durable.
class DiskModel {
 public:
  explicit DiskModel(std::filesystem::path root);

  // The calls, after they succeeded.
  void create(const std::string& path);  // a file, or nothing if it is there
  void write(const std::string& path, std::span<const std::byte> bytes);
  void truncate(const std::string& path, uint64_t size);
  void make_directory(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void remove(const std::string& path);  // a file or an empty directory
  void sync(const std::string& path);    // file or directory

  size_t changes() const { return log_.size(); }
  // Makes `target` what the disk may look like when the power went after the first `count` changes.
  // Of what was not synced by then, each file has lost its new content, a part of it, or all but
  // its length, and each directory its newest names, as `random` has it.
  void crash(size_t count, std::mt19937_64& random, const std::filesystem::path& target) const;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  // A directory's names or a file's bytes after one of the changes.
  struct Version {
    size_t after = 0;  // index of the change
    std::map<std::string, NodePtr> names;
    std::string bytes;
  };
  struct Node {
    bool is_directory = false;
    std::vector<Version> versions;  // never empty
    std::vector<size_t> syncs;      // indices of changes
  };

  NodePtr read(const std::filesystem::path& path) const;
  NodePtr find(const std::string& path) const;
  std::pair<NodePtr, std::string> parent_of(const std::string& path) const;
  Version& change(Node& node);
  void materialise(const Node& node, size_t count, std::mt19937_64& random,
                   const std::filesystem::path& target) const;

  std::filesystem::path root_path_;
  NodePtr root_;
  std::vector<std::string> log_;
};

}  // namespace trafo::testing
