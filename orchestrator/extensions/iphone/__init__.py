"""iPhones over the cable, by the commands of pymobiledevice3, and LiteRT's benchmark app on them."""
