# Before the image can be published and the rest applied.

locals {
  # What may stand in an entry of capacity, as the environment takes it: a test compares.
  fields = ["accelerator", "zone", "kind", "max_chips", "usd_per_chip_hour"]
}

module "bootstrap" {
  source = "../../../modules/bootstrap"

  project          = var.project
  region           = var.region
  bucket_locations = var.bucket_locations
  zones            = [for c in var.capacity : c.zone]
}
