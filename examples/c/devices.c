/* Lists the GPUs, and computes on one if there is one, else on the CPU. */
#include "guide.h"

int main(void) {
  int32_t count = 0, device = 0, index = 0;
  char* why = NULL;
  must(trafo_device_count(TRAFO_DEVICE_CUDA, &count, &why));
  if (count == 0) printf("no CUDA device: %s\n", why);
  trafo_string_free(why);
  for (int32_t i = 0; i < count; ++i) {
    trafo_device_info info;
    must(trafo_device_get_info(TRAFO_DEVICE_CUDA, i, &info, sizeof info));
    printf("cuda:%d is %s, compute capability %d.%d\n", (int)i, info.name, (int)info.compute_major,
           (int)info.compute_minor);
  }
  trafo_context_options options;
  trafo_context* context = NULL;
  must(trafo_context_options_init(&options, sizeof options));
  options.device = TRAFO_DEVICE_AUTO;
  must(trafo_context_new(&options, &context));
  must(trafo_context_get_device(context, &device, &index));
  printf("computing on %s\n", device == TRAFO_DEVICE_CUDA ? "CUDA" : "the CPU");
  trafo_context_free(context);
  return 0;
}
