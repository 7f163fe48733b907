# Copy to terraform.tfvars and change every line. The capacity list has no default: what may be bought is yours to say.
project          = "my-project"
region           = "us-central1"
bucket_locations = ["us-central1"]

capacity = [
  { accelerator = "v5litepod-*", zone = "us-central1-a", kind = "spot", max_chips = 64, usd_per_chip_hour = 0.55 },
  { accelerator = "v5litepod-8", zone = "us-central1-a", kind = "on_demand", max_chips = 8, usd_per_chip_hour = 1.2 },
]
max_chips       = 64
max_usd_per_day = 500

people = ["ada@example.com", "ci@my-project.iam.gserviceaccount.com"]
admins = ["ada@example.com"]

# Without a policy everyone sees and stops their own jobs alone; admins see and stop all.
policy = {
  rules = [{ who = ["*"], whose = ["*"], may = ["see"] }]
}
