// Chooses between the right and the wrong form of a mutated place, in the copies of the sources
// that mutation.py and generated.py write and nowhere else. TRAFO_MUTATION is the number of the one
// mutation that is on; none if it is not set. TRAFO_MUTATION_REACHED is a file with a byte for each
// number: a byte becomes 1 when its place is evaluated, in this process or in one that it starts.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace trafo {

struct ChosenMutation {
  bool is_known = false;
  int number = 0;
  char* reached = nullptr;
};

// Constant initialization: places that other static objects evaluate count as well.
inline constinit ChosenMutation chosen_mutation;

inline void read_chosen_mutation() {
  if (const char* number = std::getenv("TRAFO_MUTATION"))
    chosen_mutation.number = std::atoi(number);
  if (const char* path = std::getenv("TRAFO_MUTATION_REACHED")) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    const off_t size = file < 0 ? -1 : ::lseek(file, 0, SEEK_END);
    void* bytes = size <= 0 ? MAP_FAILED
                            : ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                                     MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) std::abort();  // what is not recorded would count as not reached
    chosen_mutation.reached = static_cast<char*>(bytes);
  }
  chosen_mutation.is_known = true;  // threads that come here together write the same values
}

inline bool mutated_here(int number) {
  if (!chosen_mutation.is_known) read_chosen_mutation();
  if (chosen_mutation.reached) chosen_mutation.reached[number] = 1;
  return chosen_mutation.number == number;
}

}  // namespace trafo
