// Corpus TER (Snover et al. 2006), equal to sacreBLEU 2's corpus_ter with its defaults: text in
// lower case, words between white space, Tercom's limits of the search for shifts.
#pragma once

#include <span>
#include <string>

#include "engine/metrics/metric.h"

namespace trafo {

// Sums over segments.
struct TerCounts {
  double edits = 0;             // insertions, deletions, substitutions and shifts
  double reference_length = 0;  // words; the mean over the references of a segment

  TerCounts& operator+=(const TerCounts& other);
};

struct TerScore : TerCounts {
  double score = 0;  // edits for each word of the reference, in per cent; above 100 is possible
};

// hypotheses[i] belongs to element i of each set of references. A segment counts the edits to the
// nearest of its references. INVALID_ARGUMENT if the counts differ or are 0. The score does not
// depend on the threads.
TerScore corpus_ter(std::span<const std::string> hypotheses, ReferenceSets references,
                    int threads = 1);

}  // namespace trafo
