// All parameters of a model in one allocation, all gradients in another; tensors are named views of
// them.
//
// bfloat16 parameters have a float32 master copy, and float32 gradients: the optimizer works on the
// master, files hold the master, and the values that a model computes with are the master rounded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo {

struct Init {
  enum class Kind { zeros, ones, uniform, normal } kind = Kind::zeros;
  double scale = 0;  // uniform: half width; normal: standard deviation
  // Above 0: elements of a layer, of a tensor that holds a stack of them; the scale of layer l,
  // counted from 1, is divided by the root of l.
  int64_t layer_elements = 0;

  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 0}; }
  // Glorot & Bengio 2010: uniform +-sqrt(6 / (in + out)).
  static Init xavier_uniform(int64_t in, int64_t out);
  static Init normal(double standard_deviation) { return {Kind::normal, standard_deviation}; }
};

using ParamId = int32_t;
inline constexpr ParamId kNoParam = -1;

class ParameterStore {
 public:
  // Declaration phase: names are unique; order is the order of the flat workspace.
  ParamId declare(std::string name, const Shape& shape, Init init);
  // Allocates the workspaces and draws initial values from (seed, parameter number): the same for
  // every device and thread count, for bfloat16 those of float32 rounded. Ends the declaration
  // phase.
  void allocate(Context& context, DType dtype, uint64_t seed);

  size_t count() const { return entries_.size(); }
  const std::string& name(ParamId id) const { return entries_[index(id)].name; }
  const Shape& shape(ParamId id) const { return entries_[index(id)].shape; }
  const Tensor& value(ParamId id) const { return entries_[index(id)].value; }
  const Tensor& grad(ParamId id) const { return entries_[index(id)].grad; }
  ParamId find(const std::string& name) const;  // kNoParam if there is none
  int64_t parameter_count() const;              // elements, without alignment padding
  DType dtype() const { return flat_.dtype(); }

  // Every tensor starts at a multiple of 16 elements; the padding between them is zero and stays
  // zero.
  const Tensor& flat() const { return flat_; }            // of dtype()
  const Tensor& master() const { return master_; }        // flat() itself unless that is bfloat16
  const Tensor& flat_grad() const { return flat_grad_; }  // of the master's dtype
  bool has_master() const { return flat_.dtype() != master_.dtype(); }
  // Makes the values follow a master that was written to.
  void follow_master(Context& context);

  // The next backward overwrites the gradients instead of adding to them.
  void zero_grad();
  // Zeroes the gradients that no backward has written since zero_grad: the flat gradient is whole
  // after this.
  void complete_grads(Context& context);

  // Replaces a value, given in the master's dtype; the sizes must agree.
  void set_value(Context& context, ParamId id, const void* data, size_t bytes);

 private:
  struct Entry {
    std::string name;
    Shape shape;
    Init init;
    int64_t offset;
    Tensor value, grad;
  };
  size_t index(ParamId id) const;

  std::vector<Entry> entries_;
  int64_t size_ = 0;  // elements of a workspace
  Tensor flat_, master_, flat_grad_;
};

}  // namespace trafo
