#include "../../../demo/lexicon.cc"
