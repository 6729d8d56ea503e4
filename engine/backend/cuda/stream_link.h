// The part of a link that NCCL and copies have in common: marks, and a second stream.
#pragma once

#include "engine/backend/cuda/link_api.h"
#include "engine/backend/peer_link.h"
#include "engine/core/status.h"

namespace trafo {

struct LinkWhy {
  char text[1024] = "";
  cuda::Why why() { return {text, sizeof text}; }
};

class StreamLink : public PeerLink {
 public:
  int marks() const override { return cuda::kLinkMarks; }
  void set_mark(int mark) override {
    LinkWhy why;
    check(functions_.set_mark(link_, mark, why.why()), why);
  }
  void join() override {
    LinkWhy why;
    check(functions_.join(link_, why.why()), why);
  }
  void mark(uint64_t number, bool beside) override {
    LinkWhy why;
    check(functions_.mark(link_, number, beside ? 1 : 0, why.why()), why);
  }
  uint64_t done() const override { return functions_.done(link_); }

 protected:
  StreamLink(const cuda::LinkFunctions& functions, const char* origin)
      : functions_(functions), origin_(origin) {}
  void check(int32_t result, const LinkWhy& why) const {
    const ErrorCode code = result == cuda::kOutOfMemory  ? ErrorCode::out_of_device_memory
                           : result == cuda::kDeviceLost ? ErrorCode::device_lost
                                                         : ErrorCode::internal;
    require(result == cuda::kSuccess, code, origin_, why.text);
  }

  void* link_ = nullptr;

 private:
  const cuda::LinkFunctions& functions_;
  const char* const origin_;
};

}  // namespace trafo
