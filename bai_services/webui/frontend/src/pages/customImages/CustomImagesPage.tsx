import { EntityPage } from '../../components/entities/EntityPage';
import { config } from '../../config';
import { BuildRecipe } from './BuildRecipe';
import { CUSTOM_IMAGES } from './customImages';

/** My environments: images that users make from sessions and recipes. */
export function CustomImagesPage() {
  return (
    <EntityPage
      path="/custom-images"
      title="pages.custom-images"
      entities={[CUSTOM_IMAGES]}
      toolbar={() => config.buildsRecipes && <BuildRecipe />}
    />
  );
}
