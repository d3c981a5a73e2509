// Strings for url.js and web.js: captured string functions, UTF-8 and percent-encoding, and the host parser of the
// URL Standard (url.spec.whatwg.org). One expression; its value is the third argument of both.
//
// What runs after program text uses captured intrinsics and iterates over no array of its own, so that a program that
// patches a prototype breaks itself and not this. Where hosts differ from the standard: IDNA's mapping is lower case
// and NFKC instead of the table of UTS #46, and neither bidi nor joiners nor labels that came as "xn--" are checked.
() => {
  'use strict';
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const string = String.prototype;
  const charCodeAt = uncurry(string.charCodeAt), codePointAt = uncurry(string.codePointAt);
  const indexOf = uncurry(string.indexOf), lower = uncurry(string.toLowerCase), normalize = uncurry(string.normalize);
  const slice = uncurry(string.slice), split = uncurry(string.split), wellFormed = uncurry(string.toWellFormed);
  const exec = uncurry(RegExp.prototype.exec), radix = uncurry(Number.prototype.toString);
  const { fromCodePoint } = String, { floor } = Math, Failure = TypeError;
  const encodeText = encodeURIComponent, decodeText = decodeURIComponent, toBytes = unescape, fromBytes = escape;

  const usv = (value) => wellFormed(`${value}`);
  const test = (pattern, text) => exec(pattern, text) !== null;
  const replace = (text, pattern, by) => { // a global pattern that matches no empty text
    let out = '', at = 0, match;
    pattern.lastIndex = 0;
    while ((match = exec(pattern, text)) !== null) {
      out += slice(text, at, match.index) + by(match[0], match[1]);
      at = pattern.lastIndex;
    }
    return at === 0 ? text : out + slice(text, at);
  };
  const need = (given, wanted) => {
    if (given < wanted) throw new Failure(`${wanted} argument${wanted > 1 ? 's' : ''} required, but only ${given} present`);
  };

  // The percent-encode sets of the standard, each as runs of what it encodes.
  const C0 = /[\0-\x1f\x7f-\uffff]+/g;
  const FRAGMENT = /[\0-\x20"<>`\x7f-\uffff]+/g;
  const QUERY = /[\0-\x20"#<>\x7f-\uffff]+/g;
  const SPECIAL_QUERY = /[\0-\x20"#<>'\x7f-\uffff]+/g;
  const PATH = /[\0-\x20"#<>?^`{}\x7f-\uffff]+/g;
  const USERINFO = /[\0-\x20"#<>?^`{}/:;=@[\\\]|\x7f-\uffff]+/g;
  const FORM = /[^*\-.\w]+/g;
  const KEPT = /[!'()~]/g; // encodeURIComponent keeps these (and * - . _, which no set holds)
  const encodeKept = (c) => (c === '~' ? '%7E' : `%2${radix(charCodeAt(c, 0) & 15, 16)}`);
  const encodeRun = (run) => replace(encodeText(run), KEPT, encodeKept);
  const encode = (text, set) => replace(text, set, encodeRun);

  // Group 1 is a well-formed sequence, to be kept; otherwise it is a maximal part of an ill-formed one.
  const THIRD = '(?:\\xe0[\\xa0-\\xbf]|\\xed[\\x80-\\x9f]|[\\xe1-\\xec\\xee\\xef][\\x80-\\xbf])'; // all but the last byte of three
  const FOURTH = '(?:\\xf0[\\x90-\\xbf]|[\\xf1-\\xf3][\\x80-\\xbf]|\\xf4[\\x80-\\x8f])'; // all but the last two of four
  const SEQUENCE = new RegExp(
    `([\\xc2-\\xdf][\\x80-\\xbf]|${THIRD}[\\x80-\\xbf]|${FOURTH}[\\x80-\\xbf]{2})|${THIRD}|${FOURTH}[\\x80-\\xbf]?|[\\x80-\\xff]`, 'g');
  const UNFINISHED = new RegExp(`(?:[\\xc2-\\xf4]|${THIRD}|${FOURTH}[\\x80-\\xbf]?)$`);
  const repair = (bytes) => replace(bytes, SEQUENCE, (part, whole) => whole ?? '\xef\xbf\xbd');
  const fromUtf8 = (bytes, fatal) => { // of a text of bytes; native when it is well-formed
    try { return decodeText(fromBytes(bytes)); } catch { /* it is not */ }
    if (fatal) throw new Failure('The encoded data was not valid for encoding utf-8');
    return decodeText(fromBytes(repair(bytes)));
  };
  const decode = (text) => { // percent-decodes, then decodes UTF-8
    if (indexOf(text, '%') < 0) return text;
    const clean = replace(text, /%(?![\da-f]{2})/gi, () => '%25');
    try { return decodeText(clean); } catch { /* ill-formed UTF-8 */ }
    return fromUtf8(toBytes(replace(clean, /[^\0-\x7f]+/g, encodeText)), false);
  };

  // ---- application/x-www-form-urlencoded: lists of [name, value] -----------------------------------------------
  const parseForm = (text) => {
    const list = [], parts = split(replace(text, /\+/g, () => ' '), '&');
    for (let i = 0; i < parts.length; i++) {
      if (parts[i] === '') continue;
      const equals = indexOf(parts[i], '=');
      list[list.length] = equals < 0 ? [decode(parts[i]), '']
        : [decode(slice(parts[i], 0, equals)), decode(slice(parts[i], equals + 1))];
    }
    return list;
  };
  const encodeForm = (text) => replace(encode(text, FORM), /%20/g, () => '+');
  const serialiseForm = (list) => {
    let out = '';
    for (let i = 0; i < list.length; i++) {
      out += `${i > 0 ? '&' : ''}${encodeForm(list[i][0])}=${encodeForm(list[i][1])}`;
    }
    return out;
  };

  // ---- hosts: a serialised host, or null for failure -----------------------------------------------------------
  const punycode = (label) => { // RFC 3492, section 6.3
    const points = [];
    let out = '';
    for (let i = 0; i < label.length; i++) {
      const point = codePointAt(label, i);
      if (point > 0xffff) i++;
      if (point < 128) out += label[i];
      points[points.length] = point;
    }
    const basic = out.length;
    if (basic > 0) out += '-';
    const digit = (d) => 'abcdefghijklmnopqrstuvwxyz0123456789'[d];
    for (let n = 128, delta = 0, bias = 72, done = basic; done < points.length; n++, delta++) {
      let next = Infinity;
      for (let i = 0; i < points.length; i++) if (points[i] >= n && points[i] < next) next = points[i];
      delta += (next - n) * (done + 1);
      n = next;
      for (let i = 0; i < points.length; i++) {
        if (points[i] < n) delta++;
        if (points[i] !== n) continue;
        let rest = delta;
        for (let k = 36; ; k += 36) {
          const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
          if (rest < t) break;
          out += digit(t + (rest - t) % (36 - t));
          rest = floor((rest - t) / (36 - t));
        }
        out += digit(rest);
        delta = floor(delta / (done === basic ? 700 : 2));
        delta += floor(delta / ++done);
        for (bias = 0; delta > 455; bias += 36) delta = floor(delta / 35);
        bias += floor(36 * delta / (delta + 38));
        delta = 0;
      }
    }
    return out;
  };

  const fold = (text) => { // letter by letter: a final capital sigma is an ordinary one in a host name
    let out = '';
    for (let i = 0; i < text.length;) {
      const letter = fromCodePoint(codePointAt(text, i));
      i += letter.length;
      out += lower(letter);
    }
    return normalize(out, 'NFKC');
  };
  const toAscii = (domain) => {
    if (!test(/[^\0-\x7f]/, domain)) return lower(domain);
    // Folded twice: compatibility forms of capitals become capitals first. What the table ignores goes in between.
    const ignored = /[\xad\u034f\u180b-\u180f\u200b\u2060\u2064\ufe00-\ufe0f\ufeff]|\udb40[\udd00-\uddef]/g;
    const folded = fold(replace(fold(domain), ignored, () => ''));
    const labels = split(replace(folded, /\u3002/g, () => '.'), '.');
    let out = '';
    for (let i = 0; i < labels.length; i++) {
      const label = labels[i], ascii = !test(/[^\0-\x7f]/, label);
      // Unassigned, private and invisible characters and a leading combining mark are invalid in every table.
      if (!ascii && test(/^xn--|^\p{M}|[[\p{C}\p{Z}\ufffc\ufffd]--[\u200c\u200d]]/v, label)) return null;
      out += (i > 0 ? '.' : '') + (ascii ? label : `xn--${punycode(label)}`);
    }
    return out;
  };

  const ipv4 = (domain) => { // a domain that does not end in a number is returned as it is
    const parts = split(domain, '.');
    const count = parts.length > 1 && parts[parts.length - 1] === '' ? parts.length - 1 : parts.length;
    if (!test(/^(?:\d+|0x[\da-f]*)$/, parts[count - 1])) return domain;
    if (count > 4) return null;
    let address = 0;
    for (let i = 0; i < count; i++) {
      const part = parts[i], size = i < count - 1 ? 256 : 256 ** (5 - count);
      const number = part === '0x' ? 0 : test(/^(?:0x[\da-f]+|0|[1-9]\d*)$/, part) ? +part
        : test(/^0[0-7]+$/, part) ? +`0o${part}` : NaN;
      if (!(number < size)) return null;
      address = address * size + number;
    }
    return `${address >>> 24}.${address >>> 16 & 255}.${address >>> 8 & 255}.${address & 255}`;
  };

  const OCTET = '(0|[1-9]\\d?|1\\d\\d|2[0-4]\\d|25[0-5])';
  const OCTETS = new RegExp(`^${OCTET}\\.${OCTET}\\.${OCTET}\\.${OCTET}$`);
  const ipv6 = (text) => {
    const halves = split(text, '::'), words = [];
    if (halves.length > 2) return null;
    let gap = 8; // where "::" stands
    for (let h = 0; h < halves.length; h++) {
      if (h === 1) gap = words.length;
      const pieces = halves[h] === '' ? [] : split(halves[h], ':');
      for (let i = 0; i < pieces.length; i++) {
        const quad = h === halves.length - 1 && i === pieces.length - 1 ? exec(OCTETS, pieces[i]) : null;
        if (quad !== null) {
          words[words.length] = quad[1] * 256 + +quad[2];
          words[words.length] = quad[3] * 256 + +quad[4];
        } else if (test(/^[\da-f]{1,4}$/i, pieces[i])) words[words.length] = +`0x${pieces[i]}`;
        else return null;
      }
    }
    const missing = 8 - words.length;
    if (gap === 8 && halves.length === 1 ? missing !== 0 : missing < 1) return null;
    const word = (i) => (i < gap ? words[i] : i < gap + missing ? 0 : words[i - missing]);
    let from = -1, longest = 1; // the first longest run of two zeros or more is left out
    for (let i = 0; i < 8; i++) {
      let end = i;
      while (end < 8 && word(end) === 0) end++;
      if (end - i > longest) { from = i; longest = end - i; }
    }
    let out = '';
    for (let i = 0; i < 8; i++) {
      if (i === from) { out += i === 0 ? '::' : ':'; i += longest - 1; }
      else out += radix(word(i), 16) + (i < 7 ? ':' : '');
    }
    return out;
  };

  const colonAt = (text) => { // the one that ends a host; those in brackets belong to it
    let inside = false;
    for (let i = 0; i < text.length; i++) {
      if (text[i] === '[') inside = true;
      else if (text[i] === ']') inside = false;
      else if (text[i] === ':' && !inside) return i;
    }
    return -1;
  };
  const parseHost = (text, special) => {
    if (text[0] === '[') {
      const address = text[text.length - 1] === ']' ? ipv6(slice(text, 1, -1)) : null;
      return address === null ? null : `[${address}]`;
    }
    if (!special) return test(/[\0\t\n\r #/:<>?@[\\\]^|]/, text) ? null : encode(text, C0);
    const domain = toAscii(decode(text));
    return domain === null || domain === '' || test(/[\0-\x20#%/:<>?@[\\\]^|\x7f]/, domain) ? null : ipv4(domain);
  };
  return {
    __proto__: null, uncurry, charCodeAt, indexOf, slice, split, lower, exec, radix, wellFormed, usv, test, replace, need,
    encode, decode, fromUtf8, UNFINISHED, C0, FRAGMENT, QUERY, SPECIAL_QUERY,
    PATH, USERINFO, parseForm, serialiseForm, colonAt, parseHost,
  };
}
