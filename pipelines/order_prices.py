"""Orders with the current name and price of their product.

    headrace run pipelines/order_prices.py:app
    headrace views show priced_orders
    headrace consume order_prices.priced_orders.changes

Both topics are tables: the newest row of a key is its value, and a tombstone deletes it. A new
price changes every order of that product, and nothing else. An order of an unknown product has no
price.
"""

import headrace as hr

app = hr.App("order_prices", log="file:./data")

orders = app.topic(
    "orders",
    schema="id string, product string, amount int, at timestamp",
    key="id",
    event_time="at",
)
products = app.topic(
    "products",
    schema="id string, name string, price decimal(10,2), at timestamp",
    key="id",
    event_time="at",
)

priced = hr.join_tables(
    hr.table(hr.select(orders, "id", "product", "amount"), key="id"),
    hr.table(hr.select(products, "id", "name", "price"), key="id"),
    on={"product": "id"},
    how="left",
    prefix="product_",
)

app.view("priced_orders", priced)
