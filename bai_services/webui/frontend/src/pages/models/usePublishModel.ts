import { useRef } from 'react';
import { useMutation } from '@tanstack/react-query';
import { useSaveFile } from '../../data/folders/fileContent';
import { useCreateFolder } from '../../data/folders/folders';
import { addUploads } from '../../data/folders/uploads';
import { useCheckDefinition } from '../../data/serving/endpoints';
import { refreshCard } from '../../data/serving/models';
import { definitionOf, type PublishValues } from './definition';

/** Publish a model step by step; after an error, the next attempt uses the same folder. */
export function usePublishModel() {
  const check = useCheckDefinition();
  const create = useCreateFolder();
  const save = useSaveFile();
  // The folder that this form has created, and its name.
  const created = useRef<{ id: string; name: string }>(undefined);
  const run = useMutation({
    mutationFn: async ({ values, files }: { values: PublishValues; files: readonly File[] }) => {
      const { project = '', folder = '', existing, readme = '' } = values;
      const definition = definitionOf(folder || (values.title ?? ''), values);
      // Check before creating the folder: an invalid definition must not leave an empty folder.
      await check.mutateAsync(definition);
      if (existing === undefined && created.current?.name !== folder) {
        const spec = { name: folder, project, permission: 'ro' as const, cloneable: true };
        const { id } = await create.mutateAsync(spec);
        created.current = { id, name: folder };
      }
      const id = existing ?? created.current?.id ?? '';
      // Do not overwrite files of an existing folder.
      const replaces = existing === undefined ? 'any' : 'new';
      const path = 'model-definition.yaml';
      await save.mutateAsync({ id, path, text: definition, replaces });
      if (readme.trim()) {
        await save.mutateAsync({ id, path: 'README.md', text: readme, replaces });
      }
      const card = await refreshCard(id);
      if (card.problem) {
        throw new Error(card.problem);
      }
      addUploads(
        { id, path: '' },
        files.map(file => ({ file, path: file.name }))
      );
      return id;
    }
  });
  return {
    publish: (values: PublishValues, files: readonly File[]) => run.mutateAsync({ values, files }),
    isPending: run.isPending
  };
}
