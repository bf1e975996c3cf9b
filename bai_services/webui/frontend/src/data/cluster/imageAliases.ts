import { useMutation } from '@tanstack/react-query';
import { api, unwrap } from '../client';
import { queries } from '../queries';

/** Add or remove an alias of an image. */
export function useChangeAlias(image: string) {
  return useMutation({
    mutationFn: async ({ alias, isAlias }: { alias: string; isAlias: boolean }) => {
      await (isAlias
        ? unwrap(api.POST('/image-aliases', { body: { alias, image } }))
        : unwrap(api.DELETE('/image-aliases/{key}', { params: { path: { key: alias } } })));
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ['entities'] })
  });
}
