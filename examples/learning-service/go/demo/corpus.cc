#include "../../../demo/corpus.cc"
