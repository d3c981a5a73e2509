// Part 1 of the realm: intrinsics, captured while the realm is clean. All parts share one strict closure.
//
// Whatever runs after program text uses these only: no iterator, spread, destructuring, template, regular expression,
// `await`, array method or `instanceof` on a value that a program made.
const G = globalThis;

// ---- captured while the realm is clean ------------------------------------------------------------------------
const { apply, ownKeys, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, setPrototypeOf } = Reflect;
const { freeze, create, keys } = Object;
const bind = Function.prototype.bind;
const uncurry = bind.bind(Function.prototype.call);
const P = Promise, E = Error, TE = TypeError, RE = RangeError, RangePrototype = RangeError.prototype;
const ObjectPrototype = Object.prototype, { parse, stringify, isRawJSON } = JSON, { isArray } = Array;
const { isError, captureStackTrace } = E, { isFinite } = Number, { min, max, floor, trunc, imul } = Math, NumberOf = Number;
const then = uncurry(P.prototype.then);
const slice = uncurry(String.prototype.slice), indexOf = uncurry(String.prototype.indexOf);
const charCodeAt = uncurry(String.prototype.charCodeAt), wellFormed = uncurry(String.prototype.toWellFormed);
const hasOwn = uncurry(ObjectPrototype.hasOwnProperty), bigintText = uncurry(BigInt.prototype.toString);
const mapSize = uncurry(getOwnPropertyDescriptor(Map.prototype, 'size').get), mapEach = uncurry(Map.prototype.forEach);
const setSize = uncurry(getOwnPropertyDescriptor(Set.prototype, 'size').get), setEach = uncurry(Set.prototype.forEach);
const typedTag = uncurry(getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get);
const typedLength = uncurry(getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), 'length').get);
const { toPrimitive } = Symbol;
const S = Set, setHas = uncurry(Set.prototype.has), setAdd = uncurry(Set.prototype.add), setDelete = uncurry(Set.prototype.delete);
const privateMap = () => {
  const map = new WeakMap();
  return { __proto__: null, get: bind.call(map.get, map), set: bind.call(map.set, map) };
};

const privateSet = () => { // three bound methods for each would cost more than they guard
  const set = new S();
  return { __proto__: null, has: (x) => setHas(set, x), add: (x) => setAdd(set, x), delete: (x) => setDelete(set, x) };
};

// A descriptor made after program text needs a null prototype: an inherited `get` would make it an accessor.
const hidden = (value) => ({ __proto__: null, value, writable: true, enumerable: false, configurable: true });
const own = (value) => ({ __proto__: null, value, writable: true, enumerable: true, configurable: true });
const append = (list, value) => defineProperty(list, list.length, own(value)); // push() and index setters can be patched
const locked = (value, enumerable) => ({ __proto__: null, value, writable: false, enumerable, configurable: false });
const expose = (name, value) => defineProperty(G, name, hidden(value));
const opaque = (name, f) => { // a function whose source and machinery are not shown
  const bound = apply(bind, f, [undefined]);
  defineProperty(bound, 'name', { __proto__: null, value: name, configurable: true });
  return bound;
};

// ---- what a program has no use for ----------------------------------------------------------------------------
for (const name of ['WebAssembly', 'SharedArrayBuffer', 'Atomics', 'FinalizationRegistry', 'WeakRef', 'ShadowRealm',
  'console', 'gc', 'setTimeout', 'clearTimeout']) {
  if (name in G && !delete G[name]) throw new E('the realm cannot lose ' + name);
}
defineProperty(E, 'prepareStackTrace', locked(undefined, false)); // its call sites hand out the global
defineProperty(E, 'stackTraceLimit', locked(10, false));
