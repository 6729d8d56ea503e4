#include "lexicon.h"

namespace demo {
namespace {

constexpr Gender kM = Gender::masculine, kF = Gender::feminine, kN = Gender::neuter;

constexpr Noun kNouns[] = {
    {kM, "Mann", "Mann", "Männer", "Männern", "man", "men", kPerson},
    {kF, "Frau", "Frau", "Frauen", "Frauen", "woman", "women", kPerson},
    {kN, "Kind", "Kind", "Kinder", "Kindern", "child", "children", kPerson},
    {kM, "Lehrer", "Lehrer", "Lehrer", "Lehrern", "teacher", "teachers", kPerson},
    {kF, "Ärztin", "Ärztin", "Ärztinnen", "Ärztinnen", "doctor", "doctors", kPerson},
    {kM, "Nachbar", "Nachbarn", "Nachbarn", "Nachbarn", "neighbour", "neighbours", kPerson},
    {kM, "Student", "Studenten", "Studenten", "Studenten", "student", "students", kPerson},
    {kF, "Schwester", "Schwester", "Schwestern", "Schwestern", "sister", "sisters", kPerson},
    {kM, "Bruder", "Bruder", "Brüder", "Brüdern", "brother", "brothers", kPerson},
    {kN, "Mädchen", "Mädchen", "Mädchen", "Mädchen", "girl", "girls", kPerson},
    {kM, "Junge", "Jungen", "Jungen", "Jungen", "boy", "boys", kPerson},
    {kF, "Freundin", "Freundin", "Freundinnen", "Freundinnen", "friend", "friends", kPerson},
    {kM, "Hund", "Hund", "Hunde", "Hunden", "dog", "dogs", kAnimal},
    {kF, "Katze", "Katze", "Katzen", "Katzen", "cat", "cats", kAnimal},
    {kN, "Pferd", "Pferd", "Pferde", "Pferden", "horse", "horses", kAnimal},
    {kN, "Buch", "Buch", "Bücher", "Büchern", "book", "books", kReadable | kThing},
    {kM, "Brief", "Brief", "Briefe", "Briefen", "letter", "letters", kReadable},
    {kF, "Zeitung", "Zeitung", "Zeitungen", "Zeitungen", "newspaper", "newspapers",
     kReadable | kThing},
    {kF, "Karte", "Karte", "Karten", "Karten", "map", "maps", kReadable | kThing},
    {kM, "Apfel", "Apfel", "Äpfel", "Äpfeln", "apple", "apples", kEdible | kThing},
    {kM, "Kuchen", "Kuchen", "Kuchen", "Kuchen", "cake", "cakes", kEdible | kThing},
    {kF, "Suppe", "Suppe", "Suppen", "Suppen", "soup", "soups", kEdible},
    {kN, "Brot", "Brot", "Brote", "Broten", "loaf", "loaves", kEdible | kThing},
    {kF, "Orange", "Orange", "Orangen", "Orangen", "orange", "oranges", kEdible | kThing},
    {kN, "Auto", "Auto", "Autos", "Autos", "car", "cars", kThing},
    {kN, "Fahrrad", "Fahrrad", "Fahrräder", "Fahrrädern", "bicycle", "bicycles", kThing},
    {kN, "Haus", "Haus", "Häuser", "Häusern", "house", "houses", kThing},
    {kM, "Tisch", "Tisch", "Tische", "Tischen", "table", "tables", kThing},
    {kM, "Stuhl", "Stuhl", "Stühle", "Stühlen", "chair", "chairs", kThing},
    {kF, "Lampe", "Lampe", "Lampen", "Lampen", "lamp", "lamps", kThing},
    {kF, "Blume", "Blume", "Blumen", "Blumen", "flower", "flowers", kThing},
    {kF, "Tasche", "Tasche", "Taschen", "Taschen", "bag", "bags", kThing},
    {kM, "Mantel", "Mantel", "Mäntel", "Mänteln", "coat", "coats", kThing},
    {kM, "Regenschirm", "Regenschirm", "Regenschirme", "Regenschirmen", "umbrella", "umbrellas",
     kThing},
    {kN, "Bild", "Bild", "Bilder", "Bildern", "picture", "pictures", kThing},
    {kM, "Schlüssel", "Schlüssel", "Schlüssel", "Schlüsseln", "key", "keys", kThing},
};

constexpr uint32_t kLiving = kPerson | kAnimal;
constexpr uint32_t kObjects = kThing | kReadable;
constexpr Adjective kAdjectives[] = {
    {"alt", "alt", "älter", "old", "older", kLiving | kObjects},
    {"klein", "klein", "kleiner", "small", "smaller", kLiving | kThing},
    {"schön", "schön", "schöner", "beautiful", "more beautiful", kAnimal | kObjects},
    {"jung", "jung", "jünger", "young", "younger", kLiving},
    {"freundlich", "freundlich", "freundlicher", "friendly", "friendlier", kPerson},
    {"klug", "klug", "klüger", "clever", "cleverer", kLiving},
    {"müde", "müde", "müder", "tired", "", 0},
    {"glücklich", "glücklich", "glücklicher", "happy", "happier", kPerson},
    {"krank", "krank", "kränker", "ill", "", 0},
    {"neu", "neu", "neuer", "new", "newer", kObjects},
    {"groß", "groß", "größer", "big", "bigger", kAnimal | kThing},
    {"rot", "rot", "röter", "red", "", kThing},
    {"blau", "blau", "blauer", "blue", "", kThing},
    {"grün", "grün", "grüner", "green", "", kThing},
    {"schwarz", "schwarz", "schwärzer", "black", "", kAnimal},
    {"teur", "teuer", "teurer", "expensive", "more expensive", kThing},
    {"billig", "billig", "billiger", "cheap", "cheaper", kThing},
    {"schwer", "schwer", "schwerer", "heavy", "heavier", kThing},
};

constexpr Verb kVerbs[] = {
    {"", "kaufen", "kaufe", "kaufst", "kauft", "kauft", "gekauft", false, "buy", "buys", "bought",
     Objects::accusative, kThing},
    {"", "verkaufen", "verkaufe", "verkaufst", "verkauft", "verkauft", "verkauft", false, "sell",
     "sells", "sold", Objects::accusative, kThing},
    {"", "lesen", "lese", "liest", "liest", "lest", "gelesen", false, "read", "reads", "read",
     Objects::accusative, kReadable},
    {"", "essen", "esse", "isst", "isst", "esst", "gegessen", false, "eat", "eats", "ate",
     Objects::accusative, kEdible},
    {"", "sehen", "sehe", "siehst", "sieht", "seht", "gesehen", false, "see", "sees", "saw",
     Objects::accusative, kPerson | kAnimal | kThing},
    {"", "suchen", "suche", "suchst", "sucht", "sucht", "gesucht", false, "look for", "looks for",
     "looked for", Objects::accusative, kPerson | kAnimal | kThing},
    {"", "finden", "finde", "findest", "findet", "findet", "gefunden", false, "find", "finds",
     "found", Objects::accusative, kAnimal | kThing},
    {"", "brauchen", "brauche", "brauchst", "braucht", "braucht", "gebraucht", false, "need",
     "needs", "needed", Objects::accusative, kThing},
    {"", "reparieren", "repariere", "reparierst", "repariert", "repariert", "repariert", false,
     "repair", "repairs", "repaired", Objects::accusative, kThing},
    {"", "zeichnen", "zeichne", "zeichnest", "zeichnet", "zeichnet", "gezeichnet", false, "draw",
     "draws", "drew", Objects::accusative, kAnimal | kThing},
    {"", "besuchen", "besuche", "besuchst", "besucht", "besucht", "besucht", false, "visit",
     "visits", "visited", Objects::accusative, kPerson},
    {"mit", "bringen", "bringe", "bringst", "bringt", "bringt", "mitgebracht", false, "bring along",
     "brings along", "brought along", Objects::accusative, kThing},
    {"ab", "holen", "hole", "holst", "holt", "holt", "abgeholt", false, "pick up", "picks up",
     "picked up", Objects::accusative, kPerson | kAnimal},
    {"ein", "packen", "packe", "packst", "packt", "packt", "eingepackt", false, "pack", "packs",
     "packed", Objects::accusative, kThing},
    {"an", "rufen", "rufe", "rufst", "ruft", "ruft", "angerufen", false, "call", "calls", "called",
     Objects::accusative, kPerson},
    {"ein", "laden", "lade", "lädst", "lädt", "ladet", "eingeladen", false, "invite", "invites",
     "invited", Objects::accusative, kPerson},
    {"", "helfen", "helfe", "hilfst", "hilft", "helft", "geholfen", false, "help", "helps",
     "helped", Objects::dative, kPerson},
    {"", "danken", "danke", "dankst", "dankt", "dankt", "gedankt", false, "thank", "thanks",
     "thanked", Objects::dative, kPerson},
    {"zu", "hören", "höre", "hörst", "hört", "hört", "zugehört", false, "listen to", "listens to",
     "listened to", Objects::dative, kPerson},
    {"", "geben", "gebe", "gibst", "gibt", "gebt", "gegeben", false, "give", "gives", "gave",
     Objects::dative_accusative, kThing},
    {"", "zeigen", "zeige", "zeigst", "zeigt", "zeigt", "gezeigt", false, "show", "shows", "showed",
     Objects::dative_accusative, kThing | kAnimal},
    {"", "schicken", "schicke", "schickst", "schickt", "schickt", "geschickt", false, "send",
     "sends", "sent", Objects::dative_accusative, kReadable},
    {"vor", "lesen", "lese", "liest", "liest", "lest", "vorgelesen", false, "read out", "reads out",
     "read out", Objects::accusative, kReadable},
    {"", "schlafen", "schlafe", "schläfst", "schläft", "schlaft", "geschlafen", false, "sleep",
     "sleeps", "slept", Objects::none, 0},
    {"", "arbeiten", "arbeite", "arbeitest", "arbeitet", "arbeitet", "gearbeitet", false, "work",
     "works", "worked", Objects::none, 0},
    {"", "lachen", "lache", "lachst", "lacht", "lacht", "gelacht", false, "laugh", "laughs",
     "laughed", Objects::none, 0},
    {"", "warten", "warte", "wartest", "wartet", "wartet", "gewartet", false, "wait", "waits",
     "waited", Objects::none, 0},
    {"", "spielen", "spiele", "spielst", "spielt", "spielt", "gespielt", false, "play", "plays",
     "played", Objects::none, 0},
    {"", "bleiben", "bleibe", "bleibst", "bleibt", "bleibt", "geblieben", true, "stay", "stays",
     "stayed", Objects::none, 0},
    {"auf", "stehen", "stehe", "stehst", "steht", "steht", "aufgestanden", true, "get up",
     "gets up", "got up", Objects::none, 0},
    {"an", "kommen", "komme", "kommst", "kommt", "kommt", "angekommen", true, "arrive", "arrives",
     "arrived", Objects::none, 0},
    {"ein", "schlafen", "schlafe", "schläfst", "schläft", "schlaft", "eingeschlafen", true,
     "fall asleep", "falls asleep", "fell asleep", Objects::none, 0},
};

constexpr Modal kModals[] = {
    {{{"kann", "kannst", "kann", "können", "könnt", "können"}}, "can", "can", "can", "", "cannot"},
    {{{"muss", "musst", "muss", "müssen", "müsst", "müssen"}}, "has to", "have to", "", "", ""},
    {{{"will", "willst", "will", "wollen", "wollt", "wollen"}}, "wants to", "want to", "", "", ""},
    {{{"soll", "sollst", "soll", "sollen", "sollt", "sollen"}},
     "should",
     "should",
     "should",
     "",
     "should not"},
    {{{"darf", "darfst", "darf", "dürfen", "dürft", "dürfen"}}, "may", "may", "may", "", "may not"},
    {{{"möchte", "möchtest", "möchte", "möchten", "möchtet", "möchten"}},
     "would like to",
     "would like to",
     "would",
     "like to",
     "would not like to"},
};

constexpr Adverb kTimes[] = {
    {"heute", "today", Time::any},
    {"gestern", "yesterday", Time::past},
    {"morgen", "tomorrow", Time::not_past},
    {"jeden Tag", "every day", Time::any},
    {"oft", "often", Time::any},
    {"letzte Woche", "last week", Time::past},
    {"nächste Woche", "next week", Time::not_past},
    {"gestern Abend", "yesterday evening", Time::past},
    {"morgen früh", "tomorrow morning", Time::not_past},
    {"heute Abend", "this evening", Time::any},
};

constexpr Adverb kPlaces[] = {
    {"im Garten", "in the garden", Time::any},
    {"in der Stadt", "in the city", Time::any},
    {"auf dem Markt", "at the market", Time::any},
    {"in der Schule", "at school", Time::any},
    {"am Bahnhof", "at the station", Time::any},
    {"im Park", "in the park", Time::any},
    {"zu Hause", "at home", Time::any},
    {"in der Küche", "in the kitchen", Time::any},
    {"in Berlin", "in Berlin", Time::any},
    {"vor dem Museum", "in front of the museum", Time::any},
    {"neben der Kirche", "next to the church", Time::any},
};

constexpr NamePair kMonths[] = {
    {"Januar", "January"},  {"Februar", "February"},  {"März", "March"},
    {"April", "April"},     {"Mai", "May"},           {"Juni", "June"},
    {"Juli", "July"},       {"August", "August"},     {"September", "September"},
    {"Oktober", "October"}, {"November", "November"}, {"Dezember", "December"},
};
constexpr NamePair kWeekdays[] = {
    {"Montag", "Monday"},       {"Dienstag", "Tuesday"}, {"Mittwoch", "Wednesday"},
    {"Donnerstag", "Thursday"}, {"Freitag", "Friday"},   {"Samstag", "Saturday"},
    {"Sonntag", "Sunday"},
};

constexpr const char* kGermanSmall[] = {"",         "ein",      "zwei",     "drei",     "vier",
                                        "fünf",     "sechs",    "sieben",   "acht",     "neun",
                                        "zehn",     "elf",      "zwölf",    "dreizehn", "vierzehn",
                                        "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
constexpr const char* kGermanTens[] = {"",        "",        "zwanzig", "dreißig", "vierzig",
                                       "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"};
constexpr const char* kEnglishSmall[] = {"",        "one",     "two",       "three",    "four",
                                         "five",    "six",     "seven",     "eight",    "nine",
                                         "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                         "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr const char* kEnglishTens[] = {"",      "",      "twenty",  "thirty", "forty",
                                        "fifty", "sixty", "seventy", "eighty", "ninety"};

std::string german_below_hundred(int n) {
  if (n < 20) return kGermanSmall[n];
  const std::string tens = kGermanTens[n / 10];
  return n % 10 == 0 ? tens : std::string(kGermanSmall[n % 10]) + "und" + tens;
}

std::string english_below_hundred(int n) {
  if (n < 20) return kEnglishSmall[n];
  const std::string tens = kEnglishTens[n / 10];
  return n % 10 == 0 ? tens : tens + "-" + kEnglishSmall[n % 10];
}

}  // namespace

const Auxiliary kHaben = {{"habe", "hast", "hat", "haben", "habt", "haben"}};
const Auxiliary kSein = {{"bin", "bist", "ist", "sind", "seid", "sind"}};
const Auxiliary kWerden = {{"werde", "wirst", "wird", "werden", "werdet", "werden"}};
const Auxiliary kWar = {{"war", "warst", "war", "waren", "wart", "waren"}};

std::span<const Noun> nouns() {
  return kNouns;
}
std::span<const Adjective> adjectives() {
  return kAdjectives;
}
std::span<const Verb> verbs() {
  return kVerbs;
}
std::span<const Modal> modals() {
  return kModals;
}
std::span<const Adverb> time_adverbs() {
  return kTimes;
}
std::span<const Adverb> places() {
  return kPlaces;
}
std::span<const NamePair> months() {
  return kMonths;
}
std::span<const NamePair> weekdays() {
  return kWeekdays;
}

std::string german_number(int number) {
  std::string text;
  if (number >= 1000) text += german_below_hundred(number / 1000) + "tausend";
  const int hundreds = number / 100 % 10;
  if (hundreds > 0) text += (hundreds > 1 ? std::string(kGermanSmall[hundreds]) : "") + "hundert";
  text += german_below_hundred(number % 100);
  if (number % 100 == 1) text += "s";  // "hunderteins": the counting form
  return text;
}

std::string english_number(int number) {
  std::string text;
  if (number >= 1000) text += english_below_hundred(number / 1000) + " thousand";
  const int hundreds = number / 100 % 10;
  if (hundreds > 0) {
    if (!text.empty()) text += ' ';
    text += kEnglishSmall[hundreds];
    text += " hundred";
  }
  if (number % 100 > 0) {
    if (!text.empty()) text += " and ";
    text += english_below_hundred(number % 100);
  }
  return text;
}

std::string german_ordinal_stem(int number) {
  switch (number) {
    case 1:
      return "erst";
    case 3:
      return "dritt";
    case 7:
      return "siebt";
    case 8:
      return "acht";
    default:
      return german_below_hundred(number) + (number < 20 ? "t" : "st");
  }
}

std::string english_ordinal(int number) {
  static constexpr const char* kIrregular[] = {"",      "first", "second",  "third",  "fourth",
                                               "fifth", "sixth", "seventh", "eighth", "ninth"};
  if (number == 12) return "twelfth";
  if (number >= 10 && number < 20) return std::string(kEnglishSmall[number]) + "th";
  if (number < 10) return kIrregular[number];
  if (number == 20) return "twentieth";
  if (number == 30) return "thirtieth";
  return std::string(kEnglishTens[number / 10]) + "-" + kIrregular[number % 10];
}

}  // namespace demo
