// Part 2 of the realm: time and chance are inputs. The clock stands still while a program computes.

let now = 0, chance = 0;
const uint32 = () => { // mulberry32
  chance = (chance + 0x6D2B79F5) | 0;
  let t = imul(chance ^ (chance >>> 15), 1 | chance);
  t = (t + imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return (t ^ (t >>> 14)) >>> 0;
};
defineProperty(Math, 'random', hidden(opaque('random', () => uint32() / 4294967296)));
const RealDate = Date, dateText = uncurry(Date.prototype.toString), construct = Reflect.construct;
const FrozenDate = function Date(...given) {
  if (new.target === undefined) return dateText(new RealDate(now));
  return construct(RealDate, given.length === 0 ? [now] : given, new.target === FrozenDate ? RealDate : new.target);
};
defineProperty(FrozenDate, 'prototype', { value: RealDate.prototype, writable: false });
defineProperty(FrozenDate, 'length', { value: 7 });
defineProperty(FrozenDate, 'now', hidden(opaque('now', () => now)));
for (const name of ['parse', 'UTC']) defineProperty(FrozenDate, name, hidden(RealDate[name]));
defineProperty(RealDate.prototype, 'constructor', hidden(FrozenDate));
expose('Date', FrozenDate);
const Formats = Intl.DateTimeFormat.prototype, partsOf = uncurry(Formats.formatToParts);
const formatOf = uncurry(getOwnPropertyDescriptor(Formats, 'format').get);
const orNow = (date) => (date === undefined ? now : date);
defineProperty(Formats, 'formatToParts', hidden({ formatToParts(date) { return partsOf(this, orNow(date)); } }.formatToParts));
defineProperty(Formats, 'format', { configurable: true, get() {
  const format = formatOf(this);
  return (date) => format(orNow(date));
} });
if (typeof Temporal !== 'undefined') {
  const fromMs = Temporal.Instant.fromEpochMilliseconds, zoned = uncurry(Temporal.Instant.prototype.toZonedDateTimeISO);
  const at = (zone) => zoned(fromMs(trunc(now)), zone === undefined ? 'UTC' : zone);
  const Zoned = Temporal.ZonedDateTime.prototype, clock = { __proto__: null, instant: () => fromMs(trunc(now)),
    timeZoneId: () => 'UTC', zonedDateTimeISO: at };
  for (const part of ['PlainDate', 'PlainTime', 'PlainDateTime']) {
    const convert = uncurry(Zoned['to' + part]);
    clock['p' + slice(part, 1) + 'ISO'] = (zone) => convert(at(zone));
  }
  for (const name of ownKeys(Temporal.Now)) {
    if (typeof name !== 'string') continue;
    if (clock[name]) defineProperty(Temporal.Now, name, hidden(opaque(name, clock[name])));
    else delete Temporal.Now[name];
  }
}

