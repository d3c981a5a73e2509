// Pay the goodwill for the order that has waited longest of those promised this week and still on their way.
const today = Date.parse("2026-03-13");
const { orders } = await tools.shop.list_orders({
  status: "in_transit",
  promised_from: "2026-03-06",
  promised_to: "2026-03-12",
  page_size: 100,
});
const waiting = orders
  .map((order) => ({ ...order, days_late: Math.round((today - Date.parse(order.promised_on)) / 86_400_000) }))
  .sort((a, b) => b.days_late - a.days_late || b.total - a.total);
const [worst] = waiting;
if (!worst) return { waiting: 0 };

const { lines, refunded } = await tools.shop.get_order({ order_id: worst.order_id });
const amount = await tools.goodwill({ total: worst.total - refunded, days_late: worst.days_late });
const refund = await tools.shop.issue_refund({
  order_id: worst.order_id,
  amount,
  reason: `${lines[0].name} is ${worst.days_late} days late`,
});
return { waiting: waiting.length, ...refund };
